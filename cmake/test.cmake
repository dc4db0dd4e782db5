# add_test through launch.sh, which counts the processor time of each test. COMMAND may be a target.
function(conv_test)
    cmake_parse_arguments(PARSE_ARGV 0 test "" "NAME" "COMMAND")
    list(POP_FRONT test_COMMAND program)
    if(TARGET ${program})
        set(program $<TARGET_FILE:${program}>)
    endif()
    add_test(NAME ${test_NAME} COMMAND bash ${PROJECT_SOURCE_DIR}/tests/launch.sh ${test_NAME}
        ${program} ${test_COMMAND})
endfunction()
