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

# conch_link_tested(<target>)
#
# Gives a test program every conch_library(). In a debug build that is one shared library, libconch_tested.so: 200
# programs with all objects and their debug information would take gigabytes, and a minute of linking. A release
# build, whose symbols are hidden, links the objects into each program, by gold where it is there: it takes half as long.
find_program(GOLD ld.gold)
function(conch_link_tested target)
    if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
        conch_link_whole(${target})
        if(GOLD)
            target_link_options(${target} PRIVATE -fuse-ld=gold)
        endif()
        return()
    endif()
    if(NOT TARGET conch_tested)
        add_library(conch_tested SHARED ${CMAKE_SOURCE_DIR}/cmake/empty.c)
        conch_link_whole(conch_tested)
        target_sources(conch_tested PRIVATE $<TARGET_OBJECTS:conch_proto>)    # messages that only tests use, too
        target_include_directories(conch_tested SYSTEM INTERFACE $<TARGET_PROPERTY:llhttp,INTERFACE_INCLUDE_DIRECTORIES>)
        target_link_libraries(conch_tested INTERFACE Threads::Threads PkgConfig::PROTOBUF_C PkgConfig::LIBDEFLATE
            PkgConfig::NGHTTP2 PkgConfig::OPENSSL ${CMAKE_DL_LIBS} m)
        set_target_properties(conch_tested PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    endif()
    target_link_libraries(${target} PRIVATE conch_tested)
endfunction()
