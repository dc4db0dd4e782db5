# The documents that are installed, with links among them. A link to a file that is not installed
# (sources, mostly) becomes plain text, so that no installed document has a dead link.
function(conv_install_docs)
    file(GLOB docs RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS
        README.md CHANGELOG.md SECURITY.md CONTRIBUTING.md SUPPORT.md LICENSE CITATION.cff kernels/README.md
        kernels/layer/*.md docs/*.md docs/*.png docs/*.jpg docs/*.svg docs/course/*.md docs/course/*.svg
        docs/gallery/*.jpg docs/reference/*.json samples/*.png)
    foreach(doc IN LISTS docs)
        get_filename_component(folder ${doc} DIRECTORY)
        set(source ${PROJECT_SOURCE_DIR}/${doc})
        if(doc MATCHES "\\.md$")
            set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
            conv_drop_links(${doc} "${docs}")
            set(source ${PROJECT_BINARY_DIR}/installed_docs/${doc})
        endif()
        install(FILES ${source} DESTINATION ${CMAKE_INSTALL_DOCDIR}/${folder})
    endforeach()
endfunction()

# Writes installed_docs/DOC in the build folder.
function(conv_drop_links doc docs)
    get_filename_component(folder ${PROJECT_SOURCE_DIR}/${doc} DIRECTORY)
    file(READ ${PROJECT_SOURCE_DIR}/${doc} text)
    # Targets only: brackets would disturb CMake's lists.
    string(REGEX MATCHALL "\\([A-Za-z0-9_./-]+(#[a-z0-9-]+)?\\)" targets "${text}")
    list(REMOVE_DUPLICATES targets)
    foreach(target IN LISTS targets)
        string(REGEX REPLACE "^\\(|(#.*)?\\)$" "" path "${target}")
        get_filename_component(path ${folder}/${path} ABSOLUTE)
        file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${path})
        if(NOT path IN_LIST docs)
            string(REGEX REPLACE "([][.()+*^$|?\\])" "\\\\\\1" pattern "${target}")
            string(REGEX REPLACE "\\[([^]]*)\\]${pattern}" "\\1" text "${text}")
        endif()
    endforeach()
    file(WRITE ${PROJECT_BINARY_DIR}/installed_docs/${doc} "${text}")
endfunction()

# The manual page with the version of the project at its foot.
function(conv_install_manual)
    set(source ${PROJECT_SOURCE_DIR}/share/conv.1)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
    file(READ ${source} text)
    string(REGEX REPLACE "\n\\.TH CONV 1 ([^ ]+) conv " "\n.TH CONV 1 \\1 \"conv ${PROJECT_VERSION}\" " text "${text}")
    string(REGEX REPLACE "\n\\.Os\n" "\n.Os \"conv ${PROJECT_VERSION}\"\n" text "${text}")
    file(WRITE ${PROJECT_BINARY_DIR}/installed_docs/conv.1 "${text}")
    file(WRITE ${PROJECT_BINARY_DIR}/installed_docs/conv-bench.1 ".so man1/conv.1\n")
    install(FILES ${PROJECT_BINARY_DIR}/installed_docs/conv.1 ${PROJECT_BINARY_DIR}/installed_docs/conv-bench.1
        DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endfunction()
