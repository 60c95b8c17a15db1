/* SPDX-License-Identifier: Apache-2.0 */
/* Nothing: a shared object needs a source file of its own (see library.cmake). */
typedef int conch_empty;
