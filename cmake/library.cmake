# SPDX-License-Identifier: Apache-2.0

# conch_library(<name> DIR <folder> [DEPS <libraries>])
#
# Makes the static library conch_<name> from all C files of <folder> (below src/). Its objects are
# also linked, whole and alone, into a throw-away shared object against DEPS only: an undefined
# symbol there is an arrow that the design does not have.
function(conch_library name)
    cmake_parse_arguments(ARG "" "DIR" "DEPS" ${ARGN})
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${ARG_DIR}/*.c)
    if(NOT sources)
        set(sources ${CMAKE_SOURCE_DIR}/cmake/empty.c)
    endif()

    add_library(conch_${name} STATIC ${sources})
    target_include_directories(conch_${name} PUBLIC
        ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include ${CMAKE_BINARY_DIR}/generated)
    conch_own_code(conch_${name})
    target_link_libraries(conch_${name} PUBLIC ${ARG_DEPS})
    set_property(GLOBAL APPEND PROPERTY CONCH_LIBRARIES conch_${name})

    # Sanitizers and fuzzers leave their own symbols undefined in shared objects; the plain builds check.
    if(NOT CONCH_SANITIZE AND NOT CONCH_FUZZ)
        add_library(arrows_${name}_link SHARED ${CMAKE_SOURCE_DIR}/cmake/empty.c)
        target_link_libraries(arrows_${name}_link PRIVATE
            -Wl,-z,defs -Wl,--whole-archive conch_${name} -Wl,--no-whole-archive)
        set_target_properties(arrows_${name}_link PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/arrows)
    endif()
endfunction()

# conch_link_whole(<target>)
#
# Links every conch_library() whole into <target>: nothing inside refers to the exported ABI, so a
# linker that takes only needed objects from an archive would leave it out.
function(conch_link_whole target)
    get_property(libraries GLOBAL PROPERTY CONCH_LIBRARIES)
    foreach(library ${libraries})
        target_sources(${target} PRIVATE $<TARGET_OBJECTS:${library}>)
        target_link_libraries(${target} PRIVATE ${library})    # for its dependencies
    endforeach()
endfunction()
