# Hardening against exploits, as Debian and Fedora build their packages; tests/cli/test_security.py
# checks the binary.
include(CheckCCompilerFlag)
include(CheckLinkerFlag)

set(hardening -fstack-protector-strong)
foreach(flag IN ITEMS -fstack-clash-protection -fcf-protection=full -mbranch-protection=standard)
    string(MAKE_C_IDENTIFIER "CONV_HAS${flag}" has)
    check_c_compiler_flag(-Werror\;${flag} ${has})
    if(${has})
        list(APPEND hardening ${flag})
    endif()
endforeach()
# FORTIFY needs an optimiser; undefined first, since distributions set it in their compilers.
target_compile_options(conv_flags INTERFACE
    $<$<COMPILE_LANGUAGE:C>:${hardening}>
    $<$<AND:$<COMPILE_LANGUAGE:C>,$<CONFIG:Release>>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>)
target_link_options(conv_flags INTERFACE LINKER:-z,relro,-z,now,-z,noexecstack)

# A program without shared libraries that is still loaded at random addresses, if the C library has
# the start-up code for it.
function(conv_static_pie target)
    set(CMAKE_REQUIRED_FLAGS -fPIE)
    check_linker_flag(C -static-pie CONV_HAS_STATIC_PIE)
    if(CONV_HAS_STATIC_PIE)
        # The property would add -pie or -no-pie, either of which undoes it.
        set_property(TARGET ${target} PROPERTY POSITION_INDEPENDENT_CODE)
        target_compile_options(${target} PRIVATE -fPIE)
        target_link_options(${target} PRIVATE -static-pie)
    else()
        target_link_options(${target} PRIVATE -static)
    endif()
endfunction()
