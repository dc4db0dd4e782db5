# Finds libarchive as CONV_ARCHIVE says and sets CONV_HAVE_ARCHIVE. Plain tar needs no library.
set(CONV_HAVE_ARCHIVE OFF)
set(oldest_libarchive 3.4) # hard links of PAX archives, checks of zip headers
if(CONV_STATIC AND CONV_ARCHIVE STREQUAL "ON")
    # The static library needs the static libraries of nettle, lzma, bzip2, zstd and lz4 (and others for
    # what we do not use), not all of which Debian packages come with it.
    message(FATAL_ERROR "CONV_ARCHIVE=ON: libarchive is not linked statically; use CONV_STATIC=OFF or CONV_ARCHIVE=OFF")
endif()
if(NOT CONV_STATIC AND NOT CONV_ARCHIVE STREQUAL "OFF")
    find_package(LibArchive ${oldest_libarchive})
    if(LibArchive_FOUND)
        set(CONV_HAVE_ARCHIVE ON)
    elseif(CONV_ARCHIVE STREQUAL "ON")
        message(FATAL_ERROR "CONV_ARCHIVE=ON, but there is no libarchive ${oldest_libarchive} or later (package libarchive-dev)")
    endif()
endif()
if(CONV_HAVE_ARCHIVE)
    message(STATUS "Archives: plain tar, and by libarchive ${LibArchive_VERSION} zip, 7-Zip and compressed tar")
else()
    message(STATUS "Archives: plain tar; no libarchive for zip, 7-Zip and compressed tar")
endif()
