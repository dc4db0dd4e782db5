# Finds the CUDA toolkit as CONV_CUDA says and sets CONV_HAVE_CUDA; conv_cuda_target() sets up a
# library that holds .cu files.
set(CONV_HAVE_CUDA OFF)
if(NOT CONV_CUDA STREQUAL "OFF")
    include(CheckLanguage)
    check_language(CUDA)
    if(CMAKE_CUDA_COMPILER)
        if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
            set(CMAKE_CUDA_ARCHITECTURES 75) # replaced below, once the toolkit's version is known
            set(choose_architectures ON)
        endif()
        enable_language(CUDA)
        find_package(CUDAToolkit REQUIRED)
        set(CONV_HAVE_CUDA ON)
    elseif(CONV_CUDA STREQUAL "ON")
        message(FATAL_ERROR "CONV_CUDA=ON, but no CUDA compiler was found: put nvcc on the PATH")
    endif()
endif()

if(choose_architectures)
    # Turing to Blackwell as the toolkit allows; the newest also as PTX for GPUs to come.
    set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 86-real)
    if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
        list(APPEND CMAKE_CUDA_ARCHITECTURES 89-real 90-real 100-real 120)
    elseif(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 11.8)
        list(APPEND CMAKE_CUDA_ARCHITECTURES 89-real 90)
    else()
        list(APPEND CMAKE_CUDA_ARCHITECTURES 86-virtual)
    endif()
endif()
if(CONV_HAVE_CUDA)
    message(STATUS "CUDA ${CUDAToolkit_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")
else()
    message(STATUS "CUDA backend: not built")
endif()

function(conv_cuda_target target)
    set_target_properties(${target} PROPERTIES
        CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON CUDA_RUNTIME_LIBRARY Static
        CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}")
    target_compile_options(${target} PRIVATE
        $<$<COMPILE_LANGUAGE:CUDA>:-lineinfo;-fmad=false;--threads=0;-Xcompiler=-Wall,-Wextra>)
    if(CONV_WERROR)
        target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
    endif()
    target_link_libraries(${target} PUBLIC CUDA::cudart_static)
endfunction()
