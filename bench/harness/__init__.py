# SPDX-License-Identifier: Apache-2.0
"""What bench/run is made of; bench/README.md tells the method."""
