# libconv for other programs: a shared library, a static one, and the files with which pkg-config
# and CMake find them. Both contain conv_api and everything that it uses; only the functions of
# include/conv.h can be seen from outside.
set(CONV_LIBRARY_VERSION_SCRIPT ${PROJECT_SOURCE_DIR}/src/api/libconv.map)

# --- shared ------------------------------------------------------------------------------------
file(WRITE ${PROJECT_BINARY_DIR}/empty.c "/* the shared library is made of static ones */\ntypedef int conv_empty;\n")
add_library(conv_shared SHARED ${PROJECT_BINARY_DIR}/empty.c)
set_target_properties(conv_shared PROPERTIES OUTPUT_NAME conv EXPORT_NAME conv
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
    LINK_DEPENDS ${CONV_LIBRARY_VERSION_SCRIPT} LINKER_LANGUAGE C)
target_include_directories(conv_shared INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(conv_shared PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,conv_api>)
target_link_options(conv_shared PRIVATE
    LINKER:--version-script=${CONV_LIBRARY_VERSION_SCRIPT} LINKER:--no-undefined)

# --- static ------------------------------------------------------------------------------------
# One object in which everything except the interface is local, so that our own functions' names
# cannot collide with the program's.
set(static_library ${PROJECT_BINARY_DIR}/static/libconv.a)
set(static_names ${PROJECT_BINARY_DIR}/static/names.txt)
file(READ ${CONV_LIBRARY_VERSION_SCRIPT} script)
string(REGEX MATCHALL "conv_[a-z_]+" script_names "${script}")
string(REPLACE ";" "\n" script_names "${script_names}")
file(GENERATE OUTPUT ${static_names} CONTENT "${script_names}\n")
set(parts "")
foreach(part IN ITEMS conv_core conv_kernels conv_png ${format_targets} conv_base)
    list(APPEND parts $<TARGET_FILE:${part}>)
endforeach()
add_custom_command(OUTPUT ${static_library}
    COMMAND ${CMAKE_LINKER} -r -o conv.o --whole-archive $<TARGET_FILE:conv_api> --no-whole-archive ${parts}
    COMMAND ${CMAKE_OBJCOPY} --keep-global-symbols=${static_names} conv.o
    COMMAND ${CMAKE_COMMAND} -E rm -f ${static_library}
    COMMAND ${CMAKE_AR} rcs ${static_library} conv.o
    DEPENDS conv_api ${parts} ${static_names}
    WORKING_DIRECTORY ${PROJECT_BINARY_DIR}/static VERBATIM)
add_custom_target(conv_static ALL DEPENDS ${static_library})

# --- installation ------------------------------------------------------------------------------
# What a program that links the static library needs besides libpng.
set(libraries ${CONV_UNPACK_NAMES} deflate pthread m)
if(CONV_HAVE_ARCHIVE)
    list(PREPEND libraries archive)
endif()
list(PREPEND libraries ${formats})
set(CONV_PKGCONFIG_CUDA "")
if(CONV_HAVE_CUDA)
    # Programs may have the toolkit elsewhere: pkg-config --define-variable=cuda_libdir=FOLDER.
    set(CONV_PKGCONFIG_CUDA "\ncuda_libdir=${CUDAToolkit_LIBRARY_DIR}")
    list(APPEND libraries "-L\${cuda_libdir}" cudart_static rt dl stdc++)
endif()
string(REPLACE "\${cuda_libdir}" "${CUDAToolkit_LIBRARY_DIR}" CONV_CMAKE_LIBRARIES "${libraries}")
string(REPLACE "deflate" "\${CONV_DEFLATE_LIBRARY}" CONV_CMAKE_LIBRARIES "${CONV_CMAKE_LIBRARIES}")
list(TRANSFORM libraries PREPEND "-l" REGEX "^[^-]")
list(JOIN libraries " " CONV_PRIVATE_LIBRARIES)
file(RELATIVE_PATH CONV_PREFIX_FROM_PKGCONFIG
    /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/conv.pc.in conv.pc @ONLY)
include(CMakePackageConfigHelpers)
configure_package_config_file(cmake/convConfig.cmake.in convConfig.cmake
    INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/conv)
write_basic_package_version_file(convConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(TARGETS conv_shared EXPORT conv
    LIBRARY COMPONENT library NAMELINK_COMPONENT development)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)
install(EXPORT conv NAMESPACE conv:: FILE convTargets.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/conv)
install(FILES ${static_library} DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${PROJECT_BINARY_DIR}/convConfig.cmake ${PROJECT_BINARY_DIR}/convConfigVersion.cmake
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/conv)
install(FILES ${PROJECT_BINARY_DIR}/conv.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES include/conv.h include/conv_status.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
