# SPDX-License-Identifier: Apache-2.0

# conch_plugin(<target> DIR <folder> OUT <folder> [DEPS <libraries>])
#
# A backend, cache or repository agent: lib<target>.so from all C files of <folder>, put into <OUT>.
# It sees only the public headers and its own tree. The ABI's symbols stay undefined and without a
# DT_NEEDED: they come from the server that loads it, ours or Triton.
function(conch_plugin target)
    cmake_parse_arguments(ARG "" "DIR;OUT" "DEPS" ${ARGN})
    file(GLOB sources CONFIGURE_DEPENDS ${ARG_DIR}/*.c)
    add_library(${target} MODULE ${sources})
    target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/backends ${CMAKE_SOURCE_DIR}/caches
        ${CMAKE_SOURCE_DIR}/repoagents)
    conch_own_code(${target})
    target_link_libraries(${target} PRIVATE ${ARG_DEPS})
    target_link_options(${target} PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/plugin.map)
    set_target_properties(${target} PROPERTIES
        LIBRARY_OUTPUT_DIRECTORY ${ARG_OUT}
        LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/plugin.map)
endfunction()

# conch_plugin_folders(<variable>)
#
# Sets the variable to the names of the current folder's subfolders that hold C files, but common/.
function(conch_plugin_folders variable)
    file(GLOB sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} */*.c)
    set(names)
    foreach(source ${sources})
        get_filename_component(name ${source} DIRECTORY)
        list(APPEND names ${name})
    endforeach()
    list(REMOVE_DUPLICATES names)
    list(REMOVE_ITEM names common)
    set(${variable} ${names} PARENT_SCOPE)
endfunction()
