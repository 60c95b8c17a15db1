# SPDX-License-Identifier: Apache-2.0
#
# llhttp as an imported or built target `llhttp`. Debian 12 has no libllhttp-dev, but its
# node-llhttp installs the generated C sources; a distribution with the library is taken first.

find_library(LLHTTP_LIBRARY llhttp)
find_path(LLHTTP_INCLUDE llhttp.h PATHS /usr/share/include/llhttp PATH_SUFFIXES llhttp)
if(NOT LLHTTP_INCLUDE)
    message(FATAL_ERROR "llhttp.h is missing: `make deps` installs it (Debian: node-llhttp or libllhttp-dev)")
endif()

if(LLHTTP_LIBRARY)
    add_library(llhttp INTERFACE)
    target_link_libraries(llhttp INTERFACE ${LLHTTP_LIBRARY})
    target_include_directories(llhttp SYSTEM INTERFACE ${LLHTTP_INCLUDE})
else()
    find_path(LLHTTP_SOURCE llhttp.c PATHS /usr/share/llhttp NO_DEFAULT_PATH REQUIRED)
    add_library(llhttp STATIC ${LLHTTP_SOURCE}/llhttp.c ${LLHTTP_SOURCE}/api.c ${LLHTTP_SOURCE}/http.c)
    target_include_directories(llhttp SYSTEM PUBLIC ${LLHTTP_INCLUDE})
    target_compile_options(llhttp PRIVATE -w)    # generated code, not ours
    # The strict half of the sources, which is the only one from version 9 on.
    target_compile_definitions(llhttp PUBLIC LLHTTP_STRICT_MODE=1)
endif()
