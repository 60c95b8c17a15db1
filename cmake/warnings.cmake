# SPDX-License-Identifier: Apache-2.0
#
# One list of warnings for all of Conch's own code. Each has caught a real class of mistake in C:
# implicit narrowing is left out on purpose, since it drowns the rest in casts.

add_compile_options(
    -Wall -Wextra
    -Wshadow                 # a second `st` hides an error
    -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition
    -Wwrite-strings          # string literals are const
    -Wpointer-arith -Wcast-qual
    -Wvla                    # sizes from outside must not reach the stack
    -Wformat=2 -Wundef
    -Wno-unused-parameter    # callbacks and vtable slots
    -fno-strict-aliasing     # tensor bytes are viewed as many types
    -fno-common
)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wlogical-op -Wduplicated-cond -Wduplicated-branches
        -Wno-format-truncation)    # snprintf is there to truncate; gcc guesses lengths
endif()

if(CONCH_SANITIZE)
    add_compile_options(-fsanitize=${CONCH_SANITIZE} -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${CONCH_SANITIZE})
endif()
if(CONCH_COVERAGE)
    add_compile_options(--coverage -O0 -fprofile-update=atomic)
    add_link_options(--coverage)
endif()
if(CONCH_FUZZ)
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# The requests of tools/optimize show the compiler which branches are taken. The counts lie beside the objects,
# so both builds are made in one folder; code that did not run is built as without counts.
if(CONCH_PROFILE STREQUAL "record")
    add_compile_options(-fprofile-generate -fprofile-update=atomic)
    add_link_options(-fprofile-generate)
elseif(CONCH_PROFILE STREQUAL "use")
    add_compile_options(-fprofile-use -fprofile-partial-training -fprofile-correction -Wno-missing-profile)
    add_link_options(-fprofile-use -fprofile-partial-training -Wno-missing-profile)
elseif(CONCH_PROFILE)
    message(FATAL_ERROR "CONCH_PROFILE is '${CONCH_PROFILE}', expected 'record' or 'use'")
endif()

# conch_own_code(<target>): further options for the code that we ship, as opposed to tests.
function(conch_own_code target)
    target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
    target_compile_options(${target} PRIVATE "SHELL:-include \"${CMAKE_SOURCE_DIR}/src/base/banned.h\"")
endfunction()
