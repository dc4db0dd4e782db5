# Writes OUTPUT: for each file of FILES one line FILTER_TEXT(name, "contents"), the name as a C
# identifier (sobel-x.mat: sobel_x).
set(text "/* Generated from filters/ by cmake/embed_filters.cmake. */\n")
foreach(file IN LISTS FILES)
    get_filename_component(name ${file} NAME_WE)
    string(MAKE_C_IDENTIFIER "${name}" name)
    file(READ ${file} content)
    string(REPLACE "\\" "\\\\" content "${content}")
    string(REPLACE "\"" "\\\"" content "${content}")
    string(REPLACE "\n" "\\n" content "${content}")
    string(APPEND text "FILTER_TEXT(${name}, \"${content}\")\n")
endforeach()
file(WRITE ${OUTPUT} "${text}")
