# Builds the backend @NAME@, and serves its model with it.
CONCH ?= @CONCH@
INCLUDE ?= @INCLUDE@
LIBRARY = backends/@NAME@/libtriton_@NAME@.so

$(LIBRARY): @NAME@.c
	mkdir -p $(@D)
	$(CC) -std=c11 -O2 -Wall -Wextra -fPIC -shared -D_GNU_SOURCE -I$(INCLUDE) $(CFLAGS) $< -o $@

check: $(LIBRARY)
	$(CONCH) check --backend-directory=backends models

run: $(LIBRARY)
	$(CONCH) models --backend-directory=backends

clean:
	rm -rf backends

.PHONY: check run clean
