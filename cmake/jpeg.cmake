# Finds libjpeg-turbo as CONV_JPEG says and sets CONV_HAVE_JPEG. The older libjpeg and its forks do
# not suffice if they lack the pixel formats of libjpeg-turbo.
set(CONV_HAVE_JPEG OFF)
if(CONV_JPEG)
    find_path(JPEG_INCLUDE_DIR jpeglib.h)
    find_library(JPEG_LIBRARY NAMES jpeg)
    if(JPEG_INCLUDE_DIR AND JPEG_LIBRARY)
        include(CheckCSourceCompiles)
        set(CMAKE_REQUIRED_INCLUDES ${JPEG_INCLUDE_DIR})
        set(CMAKE_REQUIRED_LIBRARIES ${JPEG_LIBRARY})
        check_c_source_compiles("#include <stdio.h>
            #include <jpeglib.h>
            int main(void) { return jpeg_resync_to_restart(0, JCS_EXT_RGBX); }" CONV_JPEG_IS_TURBO)
        unset(CMAKE_REQUIRED_INCLUDES)
        unset(CMAKE_REQUIRED_LIBRARIES)
    endif()
    if(CONV_JPEG_IS_TURBO)
        set(CONV_HAVE_JPEG ON)
    elseif(NOT CONV_JPEG STREQUAL "AUTO")
        message(FATAL_ERROR "CONV_JPEG is ON, but there is no libjpeg-turbo (Debian: libjpeg62-turbo-dev)")
    endif()
endif()
