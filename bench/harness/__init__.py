# SPDX-License-Identifier: Apache-2.0
"""The parts of bench/run; bench/README.md describes the method."""
