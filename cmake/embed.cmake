# SPDX-License-Identifier: Apache-2.0
#
# conch_embed(<header> <symbol> <file> …): writes a header in the build folder with the bytes of each file as
# `static const char <symbol>[]`, which ends with a zero byte. A changed file is embedded again.

function(conch_embed header)
    set(text "/* Made by cmake/embed.cmake. */\n")
    set(rest ${ARGN})
    while(rest)
        list(POP_FRONT rest symbol file)
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
        file(READ ${file} bytes HEX)
        string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
        string(APPEND text "static const char ${symbol}[] = {${bytes}0};\n")
    endwhile()
    file(CONFIGURE OUTPUT ${header} CONTENT "${text}" @ONLY)
endfunction()
