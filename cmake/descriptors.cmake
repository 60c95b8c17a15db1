# SPDX-License-Identifier: Apache-2.0
#
# cmake -DOUT=<file> -DSETS=<a,b,…> -P descriptors.cmake
#
# Writes a C file with the descriptors of .proto files as constants (src/proto/descriptors.h). Each file of SETS is a
# FileDescriptorSet that protoc has written.

string(REPLACE "," ";" sets "${SETS}")
set(arrays "")
set(rows "")
set(count 0)
foreach(set ${sets})
    file(READ ${set} hex HEX)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
    string(REGEX REPLACE "(................................................................................)" "\\1\n    " bytes "${bytes}")
    string(APPEND arrays "static const unsigned char set_${count}[] = {\n    ${bytes}\n};\n\n")
    string(APPEND rows "    {set_${count}, sizeof(set_${count})},\n")
    math(EXPR count "${count} + 1")
endforeach()
file(WRITE ${OUT} "/* Made from the .proto files by cmake/descriptors.cmake. */
#include \"proto/descriptors.h\"

${arrays}const struct proto_descriptor proto_descriptors[] = {
${rows}};

const size_t proto_n_descriptors = ${count};
")
