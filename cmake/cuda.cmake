# Finds the CUDA toolkit as CONV_CUDA says and sets CONV_HAVE_CUDA; conv_cuda_target() sets up a
# library that holds .cu files.
set(CONV_HAVE_CUDA OFF)
set(oldest_toolkit 11.7) # __grid_constant__

# The compute capabilities of this machine's GPUs that are at least 7.5, as "75;90".
function(conv_cuda_capabilities_here result)
    find_program(NVIDIA_SMI nvidia-smi PATHS /usr/lib/wsl/lib)
    set(here "")
    if(NVIDIA_SMI)
        execute_process(COMMAND ${NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
            OUTPUT_VARIABLE capabilities ERROR_QUIET RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE)
        string(REGEX MATCHALL "[0-9]+\\.[0-9]" capabilities "${capabilities}")
        foreach(capability IN LISTS capabilities)
            string(REPLACE "." "" number "${capability}")
            if(NOT failed AND number GREATER_EQUAL 75)
                list(APPEND here ${number})
            endif()
        endforeach()
        list(REMOVE_DUPLICATES here)
    endif()
    set(${result} "${here}" PARENT_SCOPE)
endfunction()

set(cuda_wanted ON)
set(choose_architectures OFF)
if(CONV_CUDA STREQUAL "OFF")
    set(cuda_wanted OFF)
elseif(CONV_CUDA_FOR STREQUAL "here" AND NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    conv_cuda_capabilities_here(capabilities_here)
    if(NOT capabilities_here AND CONV_CUDA STREQUAL "ON")
        message(FATAL_ERROR "CONV_CUDA_FOR=here, but nvidia-smi names no GPU of compute capability 7.5 or newer")
    elseif(NOT capabilities_here)
        message(STATUS "No GPU of compute capability 7.5 or newer on this machine")
        set(cuda_wanted OFF)
    endif()
endif()
if(cuda_wanted)
    include(CheckLanguage)
    if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
        # NVIDIA's packages install to /usr/local/cuda, which is rarely on the PATH.
        find_program(CMAKE_CUDA_COMPILER nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH
            PATHS /usr/local/cuda PATH_SUFFIXES bin)
    endif()
    check_language(CUDA)
    if(CMAKE_CUDA_COMPILER)
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
        if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL ${oldest_toolkit})
            set(CONV_HAVE_CUDA ON)
        elseif(CONV_CUDA STREQUAL "ON")
            message(FATAL_ERROR "CONV_CUDA=ON, but CUDA ${CUDAToolkit_VERSION} is older than ${oldest_toolkit}")
        endif()
    elseif(CONV_CUDA STREQUAL "ON")
        message(FATAL_ERROR "CONV_CUDA=ON, but no CUDA compiler was found: put nvcc on the PATH")
    endif()
endif()

# Machine code for this machine's GPUs; for one that is newer than the toolkit, its newest PTX.
function(conv_cuda_architectures_here result)
    execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE known ERROR_QUIET)
    string(REGEX MATCHALL "[0-9]+" known "${known}")
    list(SORT known COMPARE NATURAL ORDER DESCENDING)
    list(GET known 0 newest)
    set(architectures "")
    foreach(number IN LISTS capabilities_here)
        if(number EQUAL 90 AND CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.0)
            list(APPEND architectures 90a-real)
        elseif(number IN_LIST known)
            list(APPEND architectures ${number}-real)
        else()
            list(APPEND architectures ${newest}-virtual)
        endif()
    endforeach()
    list(REMOVE_DUPLICATES architectures)
    set(${result} "${architectures}" PARENT_SCOPE)
endfunction()

if(choose_architectures)
    # Turing to Blackwell as the toolkit allows; the newest also as PTX for future GPUs. 90a has
    # features of Hopper only: warps that release registers to others
    # (kernels/stencil/cuda/tma_pipeline.cuh). Machine code for each, so that nothing is compiled
    # when the program starts. Ada (8.9) runs the code for 8.6: ptxas of CUDA 13.0 makes the same
    # bytes for both (all 41 kernels of blocked.cu, dp4a.cu and tiles.cu), while those for 8.0 differ.
    set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 86-real)
    if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
        list(APPEND CMAKE_CUDA_ARCHITECTURES 90a-real 100-real 120)
    elseif(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.0)
        list(APPEND CMAKE_CUDA_ARCHITECTURES 90a-real 90-virtual)
    elseif(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 11.8)
        list(APPEND CMAKE_CUDA_ARCHITECTURES 90)
    else()
        list(APPEND CMAKE_CUDA_ARCHITECTURES 86-virtual)
    endif()
    if(CONV_CUDA_FOR STREQUAL "here")
        conv_cuda_architectures_here(CMAKE_CUDA_ARCHITECTURES)
    elseif(CONV_CUDA_FOR STREQUAL "check")
        set(CMAKE_CUDA_ARCHITECTURES 75-virtual 90a-real)
        if(CUDAToolkit_VERSION VERSION_LESS 12.0)
            set(CMAKE_CUDA_ARCHITECTURES 75-virtual 86-real)
        endif()
    endif()
endif()
if(CONV_HAVE_CUDA)
    message(STATUS "CUDA ${CUDAToolkit_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")
else()
    message(STATUS "CUDA backend: not built")
endif()

# -fmad=false for the same reason as -ffp-contract=off in C.
function(conv_cuda_target target)
    set_target_properties(${target} PROPERTIES
        CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON CUDA_RUNTIME_LIBRARY Static
        CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}")
    set(options -fmad=false --threads=0 -Xcompiler=-Wall,-Wextra)
    # Seven architectures (these and 8.9) took 6.4 MB with zstd and 59 MB without. A process
    # decompresses only the kernels that it runs: 3 of 24 ms of user time for one image on an H200,
    # and no difference in its 0.4 s of wall time. Drivers before CUDA 12.4 cannot read zstd, so it
    # is used with toolkits whose programs need a newer driver anyway.
    if(CONV_CUDA_FOR STREQUAL "check" AND CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
        list(APPEND options --compress-mode=none)
    elseif(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 13.0)
        list(APPEND options --compress-mode=size)
    elseif(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
        list(APPEND options --compress-mode=speed)
    endif()
    # Code that is never run still passes the compiler's front end and the assembler, in a fifth of
    # the time (tiles.cu: 2.4 s of processor time instead of 10.7).
    if(CONV_CUDA_FOR STREQUAL "check" AND CUDAToolkit_VERSION VERSION_GREATER_EQUAL 13.0)
        list(APPEND options --Ofast-compile=max)
    endif()
    target_compile_options(${target} PRIVATE
        $<$<COMPILE_LANGUAGE:CUDA>:${options}>
        # For the profiler; it makes the program several times as large.
        $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<NOT:$<CONFIG:Release>>>:-lineinfo>)
    if(CONV_WERROR)
        target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
    endif()
    set(have_wgmma 0) # instructions that only 90a has
    if("${CMAKE_CUDA_ARCHITECTURES}" MATCHES "90a")
        set(have_wgmma 1)
    endif()
    target_compile_definitions(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:CONV_HAVE_WGMMA=${have_wgmma}>)
    if(CONV_STATIC)
        # The code that nvcc generates around a launch needs two functions of the C++ library.
        target_link_options(${target} INTERFACE -static-libstdc++ -static-libgcc)
    endif()
    target_link_libraries(${target} PUBLIC CUDA::cudart_static)
endfunction()

# Adds other libraries to the benchmark if CONV_BENCH_NPP is set and they are found: NPP, and cuDNN,
# of which only the header is needed.
function(conv_competitors_target target)
    set(suffix "")
    if(CONV_STATIC)
        set(suffix _static)
    endif()
    set(have_npp 0)
    set(have_cudnn 0)
    if(CONV_BENCH_NPP AND CONV_HAVE_CUDA)
        find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
        if(TARGET CUDA::nppif${suffix})
            set(have_npp 1)
            target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src/bench/bench_competitor_npp.c)
            target_link_libraries(${target} PRIVATE CUDA::nppif${suffix} CUDA::nppc${suffix})
            if(CONV_STATIC)
                target_link_options(${target} INTERFACE -static-libstdc++) # NPP is written in C++
            endif()
        endif()
        if(CUDNN_INCLUDE_DIR)
            set(have_cudnn 1)
            target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src/bench/bench_competitor_cudnn.c
                ${PROJECT_SOURCE_DIR}/src/bench/bench_layers_cudnn.c
                ${PROJECT_SOURCE_DIR}/src/bench/bench_layers_graph.c
                ${PROJECT_SOURCE_DIR}/src/bench/bench_cudnn.c)
            target_include_directories(${target} SYSTEM PRIVATE ${CUDNN_INCLUDE_DIR})
            target_link_libraries(${target} PRIVATE ${CMAKE_DL_LIBS})
        endif()
    endif()
    if(CONV_BENCH_NPP AND NOT have_npp)
        message(WARNING "CONV_BENCH_NPP: no NPP in this CUDA toolkit")
    endif()
    target_compile_definitions(${target} PRIVATE CONV_HAVE_NPP=${have_npp} CONV_HAVE_CUDNN=${have_cudnn})
endfunction()
