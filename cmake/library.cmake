# SPDX-License-Identifier: Apache-2.0

# conch_library(<name> DIR <folder> [DEPS <libraries>] [SUBDIRS <subfolders>])
#
# Makes the static library conch_<name> from all C files of <folder> (below src/) and of the named
# subfolders. Its objects are also linked, whole and alone, into a throw-away shared object against
# DEPS only: an undefined symbol there is an arrow that the design does not have.
function(conch_library name)
    cmake_parse_arguments(ARG "" "DIR" "DEPS;SUBDIRS" ${ARGN})
    set(folders ${CMAKE_SOURCE_DIR}/src/${ARG_DIR})
    foreach(sub ${ARG_SUBDIRS})
        list(APPEND folders ${CMAKE_SOURCE_DIR}/src/${ARG_DIR}/${sub})
    endforeach()
    set(sources)
    foreach(folder ${folders})
        file(GLOB found CONFIGURE_DEPENDS ${folder}/*.c)
        list(APPEND sources ${found})
    endforeach()
    if(NOT sources)
        return()
    endif()

    add_library(conch_${name} STATIC ${sources})
    target_include_directories(conch_${name} PUBLIC
        ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include ${CMAKE_BINARY_DIR}/generated)
    target_compile_definitions(conch_${name} PRIVATE _GNU_SOURCE)
    target_link_libraries(conch_${name} PUBLIC ${ARG_DEPS})

    # Sanitizers and fuzzers leave their own symbols undefined in shared objects; the plain builds check.
    if(NOT CONCH_SANITIZE AND NOT CONCH_FUZZ)
        add_library(arrows_${name}_link SHARED ${CMAKE_SOURCE_DIR}/cmake/empty.c)
        target_link_libraries(arrows_${name}_link PRIVATE
            -Wl,-z,defs -Wl,--whole-archive conch_${name} -Wl,--no-whole-archive)
        set_target_properties(arrows_${name}_link PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/arrows)
    endif()
endfunction()
