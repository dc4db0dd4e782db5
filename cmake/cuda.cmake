# Finds the CUDA toolkit as CONV_CUDA says and sets CONV_HAVE_CUDA; conv_cuda_target() sets up a library of .cu files.
macro(conv_without_cuda reason) # ends this file
    if(CONV_CUDA STREQUAL "ON")
        message(FATAL_ERROR "CONV_CUDA=ON, but ${reason}")
    endif()
    message(STATUS "CUDA backend: not built (${reason})")
    set(CONV_HAVE_CUDA OFF)
    list(APPEND unused_sources "(bench_)?cuda[^/]*\\.c" "[^/]*\\.cu")
    return()
endmacro()

set(here "") # the compute capabilities of this machine's GPUs that are at least 7.5, as "75;90"
if(CONV_CUDA STREQUAL "OFF")
    conv_without_cuda("CONV_CUDA=OFF")
elseif(CONV_CUDA_FOR STREQUAL "here" AND NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    find_program(NVIDIA_SMI nvidia-smi PATHS /usr/lib/wsl/lib)
    if(NVIDIA_SMI)
        execute_process(COMMAND ${NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
            OUTPUT_VARIABLE here ERROR_QUIET)
        string(REGEX MATCHALL "[0-9]+\\.[0-9]" here "${here}")
        string(REPLACE "." "" here "${here}")
        list(FILTER here INCLUDE REGEX "^(7[5-9]|[89].|1..)$")
        list(REMOVE_DUPLICATES here)
    endif()
    if(NOT here)
        conv_without_cuda("CONV_CUDA_FOR=here and nvidia-smi names no GPU of compute capability 7.5 or newer")
    endif()
endif()
include(CheckLanguage)
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    # NVIDIA's packages install to /usr/local/cuda, which is rarely on the PATH.
    find_program(CMAKE_CUDA_COMPILER nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
endif()
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
    conv_without_cuda("no CUDA compiler was found: put nvcc on the PATH")
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 75) # replaced below, once the toolkit's version is known
    set(choose_architectures ON)
endif()
enable_language(CUDA)
# CMake 3.25 marks this library as deprecated without looking whether there is one, and fails with CUDA 13,
# which has none.
if(NOT TARGET CUDA::nvToolsExt)
    add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
endif()
find_package(CUDAToolkit REQUIRED)
if(CUDAToolkit_VERSION VERSION_LESS 12.0)
    conv_without_cuda("CUDA ${CUDAToolkit_VERSION} is older than 12.0")
endif()
set(CONV_HAVE_CUDA ON)
list(APPEND unused_sources "(bench_)?no_cuda[^/]*\\.c")

if(choose_architectures AND here)
    # Machine code for this machine's GPUs; for one that is newer than the toolkit, its newest PTX.
    execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE known ERROR_QUIET)
    string(REGEX MATCHALL "[0-9]+" known "${known}")
    list(SORT known COMPARE NATURAL ORDER DESCENDING)
    list(GET known 0 newest)
    set(CMAKE_CUDA_ARCHITECTURES "")
    foreach(number IN LISTS here)
        if(number EQUAL 90)
            list(APPEND CMAKE_CUDA_ARCHITECTURES 90a-real)
        elseif(number IN_LIST known)
            list(APPEND CMAKE_CUDA_ARCHITECTURES ${number}-real)
        else()
            list(APPEND CMAKE_CUDA_ARCHITECTURES ${newest}-virtual)
        endif()
    endforeach()
    list(REMOVE_DUPLICATES CMAKE_CUDA_ARCHITECTURES)
elseif(choose_architectures AND CONV_CUDA_FOR STREQUAL "check")
    set(CMAKE_CUDA_ARCHITECTURES 75-real 90a-virtual) # ptxas checks each instruction for 90a, too
    set(CMAKE_CUDA_FLAGS_RELEASE "-O1 -DNDEBUG") # -O0 keeps unused functions, which call exit()
elseif(choose_architectures)
    # Turing to Blackwell as the toolkit allows; the newest also as PTX for future GPUs. 90a has
    # features of Hopper only: warps that release registers to others
    # (kernels/stencil/cuda/tma_pipeline.cuh). Machine code for each, so that nothing is compiled
    # when the program starts. Ada (8.9) runs the code for 8.6: ptxas of CUDA 13.0 makes the same
    # bytes for both (all 41 kernels of blocked.cu, dp4a.cu and tiles.cu), while those for 8.0 differ.
    set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 86-real 90a-real)
    if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.9)
        list(APPEND CMAKE_CUDA_ARCHITECTURES 100-real 103-real 120-real 121)
    elseif(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
        list(APPEND CMAKE_CUDA_ARCHITECTURES 100-real 120)
    else()
        list(APPEND CMAKE_CUDA_ARCHITECTURES 90-virtual)
    endif()
endif()
message(STATUS "CUDA ${CUDAToolkit_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")

# -fmad=false for the same reason as -ffp-contract=off in C.
function(conv_cuda_target target)
    if(CONV_CUDA_FOR STREQUAL "check" AND NOT target STREQUAL "conv_kernels") # few lines that depend on the GPU
        set(CMAKE_CUDA_ARCHITECTURES 75-real)
    endif()
    set_target_properties(${target} PROPERTIES
        CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON CUDA_RUNTIME_LIBRARY Static
        CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}")
    set(options -fmad=false --threads=0 -Xcompiler=-Wall,-Wextra)
    # The program for eight architectures has 31 MB with zstd, which leaves a ninth of the machine code. A process
    # decompresses only the kernels that it runs: 3 of 24 ms for one image on an H200. Drivers before CUDA 12.4 cannot read zstd.
    # Code that is never run is compiled in a fifth of the time with --Ofast-compile (tiles.cu: 2.4 s instead of 10.7); a
    # third of the rest goes to libstdc++'s Bessel functions and the like, which a defined guard leaves out.
    if(CONV_CUDA_FOR STREQUAL "check" AND CUDAToolkit_VERSION VERSION_GREATER_EQUAL 13.0)
        list(APPEND options --compress-mode=none --Ofast-compile=max -D_GLIBCXX_BITS_SPECFUN_H)
    elseif(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 13.0)
        list(APPEND options --compress-mode=size)
    elseif(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
        list(APPEND options --compress-mode=speed)
    endif()
    target_compile_options(${target} PRIVATE
        $<$<COMPILE_LANGUAGE:CUDA>:${options}>
        # For the profiler; it makes the program several times as large.
        $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<NOT:$<CONFIG:Release>>>:-lineinfo>
        $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${CONV_WERROR}>>:-Werror=all-warnings>)
    # The code that nvcc generates around a launch needs two functions of the C++ library.
    target_link_options(${target} INTERFACE "$<$<BOOL:${CONV_STATIC}>:-static-libstdc++;-static-libgcc>")
    target_link_libraries(${target} PUBLIC CUDA::cudart_static)
endfunction()
