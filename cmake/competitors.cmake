# Other libraries in conv-bench, competitor_libraries: igzip (ISA-L) if it is installed.
set(have_isal 0)
find_path(ISAL_INCLUDE_DIR isa-l/igzip_lib.h)
if(ISAL_INCLUDE_DIR AND ISAL_LIBRARY)
    set(have_isal 1)
    list(APPEND competitor_libraries ${ISAL_LIBRARY})
endif()
