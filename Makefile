# SPDX-License-Identifier: Apache-2.0
#
# A thin front: the build is in CMakeLists.txt, the work in tools/. `make help` lists the targets.

PRESET ?= release
PREFIX ?= /usr/local
SECONDS ?= 10
CYCLES ?= 1000
OUT ?= build/pytriton-dist
T ?=

DEPS = tools/deps/install
WHEEL = .deps/torch-wheel/venv/lib/python3.11/site-packages/torch
CONFIGURE = cmake --preset $(PRESET) --log-level=WARNING >/dev/null

.PHONY: build everything deps run optimized test test-rust test-java test-frameworks test-torch-wheel test-tensorrt test-gpu torch-shim test-go test-node test-site stress soak churn pauses format check bench fuzz coverage docs install uninstall deb pytriton-dist tag reference clean help

build: ## build the server, its backends and the manual page (PRESET=release|debug|asan|tsan|clang|…) into build/<preset>
	@$(DEPS) -q run
	@$(CONFIGURE)
	@cmake --build --preset $(PRESET) --target product
	@echo "built build/$(PRESET)/bin/conch; next: make run (serves examples/), make test, or sudo make install PREFIX=$(PREFIX)"

everything: ## build the tests and benchmarks, too
	@$(DEPS) -q run test
	@$(CONFIGURE)
	@cmake --build --preset $(PRESET)

deps: ## install what Conch needs from Debian and PyPI (pins: tools/deps/pins; `make bench` brings its own)
	@$(DEPS)

run: ## build, serve examples/ and show it answering, until Ctrl-C (ONCE=1: end after the demo; FRAMEWORKS=1: a model of each format, too)
	@$(DEPS) -q run $(if $(FRAMEWORKS),test forests openvino torch)
	@$(CONFIGURE)
	@cmake --build --preset $(PRESET) --target product $(if $(FRAMEWORKS),torch_script)
	@FRAMEWORKS=$(FRAMEWORKS) CONCH_BIN=build/$(PRESET)/bin/conch CONCH_BACKENDS=build/$(PRESET)/backends tools/run-demo

optimized: ## build into build/optimized with branches as the benchmark takes them; then `make install PRESET=optimized`
	@$(DEPS) -q run
	@tools/optimize

test: ## run all tests (T=core/sched narrows to what begins so; PRESET=asan|tsan)
	@$(DEPS) -q run test
	@tools/test $(PRESET) $(T)

test-rust: ## install a Rust compiler, and test the backend in Rust of docs/writing-a-backend.md, and a client of gRPC (needs Rust 1.88)
	@$(DEPS) -q run test rust clients
	@tools/test $(PRESET) system/test_writing_a_backend
	@tests/clients/build rust
	@tools/test $(PRESET) system/test_grpc_languages

test-java: ## install a JDK and Maven, fetch the Java binding of Triton's C API, and test a program that embeds our library by it, and clients of gRPC
	@$(DEPS) -q run test java clients clients-java
	@tools/test $(PRESET) system/test_embedding_programs
	@tests/clients/build java
	@tools/test $(PRESET) system/test_grpc

test-frameworks: ## install treelite, XGBoost, LightGBM (30 MB), OpenVINO (60 MB), PyTorch (127 MB), TensorFlow (274 MB) and models of packages (50 MB), and test the backends of their frameworks
	@$(DEPS) -q run test forests openvino torch tensorflow real
	@tools/test $(PRESET) system/test_forests
	@tools/test $(PRESET) system/test_openvino
	@tools/test $(PRESET) system/test_tensorflow
	@tools/test $(PRESET) system/test_pytorch
	@tools/test $(PRESET) system/test_frameworks
	@tools/test $(PRESET) system/test_real_models

test-torch-wheel: ## install PyTorch's newest package (570 MB), compile the backend pytorch's part for it, and test the backend with it
	@$(DEPS) -q run test torch torch-wheel
	@$(CONFIGURE)
	@cmake --build --preset $(PRESET) --target product
	@backends/pytorch/shim/build $(WHEEL)
	@tools/test $(PRESET) system/test_pytorch_wheel
	@CONCH_TORCH=$(CURDIR)/$(WHEEL)/lib/libtorch_cpu.so CONCH_WITHOUT_TRITON=1 tools/test $(PRESET) system/test_pytorch

test-tensorrt: ## install a JDK, Maven and by it TensorRT's library (556 MB), and test what the backend tensorrt does with it, and without a GPU
	@$(DEPS) -q run test tensorrt
	@tools/test $(PRESET) system/test_tensorrt

test-gpu: ## on a machine with a GPU, and a Python with NVIDIA's package tensorrt: engines of TensorRT from ONNX examples (has not been run yet)
	@$(DEPS) -q run test
	@tools/test $(PRESET) gpu/test_tensorrt_gpu

torch-shim: ## compile the backend pytorch's part for a PyTorch of your own: TORCH=…/site-packages/torch
	@backends/pytorch/shim/build $(TORCH)

test-go: ## with a Go of 1.26 or newer, build a client, grpcurl, a health probe and Go's client of the interoperability tests, and ask with them
	@$(DEPS) -q run test clients
	@tests/clients/build go
	@tools/test $(PRESET) system/test_grpc

test-node: ## with Node and npm, make a client of gRPC in JavaScript, and ask with it
	@$(DEPS) -q run test
	@tests/clients/build node
	@tools/test $(PRESET) system/test_grpc_languages

test-site: ## install MkDocs and Chromium (410 MB), and look whether the documentation is cut off on a phone, in a narrow window, in a wide one
	@$(DEPS) -q run test docs site
	@tools/test $(PRESET) system/test_site

stress: ## random clients of all kinds against one server, for SECONDS=10 under the address and as long under the thread sanitizer
	@$(DEPS) -q run test
	@for preset in asan tsan; do CONCH_STRESS_SECONDS=$(SECONDS) tools/test --label stress --pytest=-ofaulthandler_timeout=0 $$preset || exit; done

soak: ## mixed load with rests between, for SECONDS=10; a table of who holds how much memory, and no growth (PRESET=release)
	@$(DEPS) -q run test
	@CONCH_SOAK_SECONDS=$(SECONDS) tools/test --pytest=-ofaulthandler_timeout=0 --pytest=-s $(PRESET) stress/test_soak

churn: ## each framework's model is loaded, asked and unloaded CYCLES=1000 times; no memory is left behind (PRESET=release)
	@$(DEPS) -q run test forests openvino torch
	@CONCH_CHURN=$(CYCLES) tools/test --pytest=-ofaulthandler_timeout=0 --pytest=-s $(PRESET) system/test_framework_churn

pauses: ## run the tests while threads dawdle at random, seldom and often (T=core/sched narrows; PRESET=debug|asan)
	@$(DEPS) -q run test
	@for pauses in 30,2000 6,500 200,20000; do echo "==== PAUSES=$$pauses"; tools/test --pauses=$$pauses $(PRESET) $(T) || exit; done

format: ## write C code as clang-format does, and texts without blanks at the end of a line
	@$(DEPS) -q check
	@tools/format

check: ## formatting, blanks at line ends, clang-tidy, shellcheck, spelling, licence headers, arrows between folders, citations, quotations, listings, structure, duplicate tests, commit messages, the version, our own models
	@$(DEPS) -q run test check
	@tools/check

bench: ## measure against nginx, yyjson and the genuine Triton, method in bench/README.md (BENCH=--quick, BENCH='ROW…')
	@$(DEPS) -q run test forests openvino torch bench reference
	@PRESET=$(PRESET) bench/run $(BENCH)

fuzz: ## search with each fuzz target for SECONDS=10 (T=fuzz/json narrows)
	@$(DEPS) -q run test check
	@CONCH_CMAKE=-DCONCH_FUZZ_SECONDS=$(SECONDS) tools/test --label fuzz fuzz $(T)

coverage: ## run the tests with line counters; table per folder, fails below 85 % of src/
	@$(DEPS) -q run test check
	@tools/coverage

docs: ## build the documentation into site/
	@$(DEPS) -q docs
	@tools/docs/build
	@echo "docs: site/index.html"

pytriton-dist: ## lay out in OUT=build/pytriton-dist the folder that PyTriton's TRITONSERVER_DIST_DIR wants (docs/pytriton.md)
	@$(DEPS) -q run
	@$(CONFIGURE)
	@cmake --build --preset $(PRESET) --target product
	@tools/pytriton-dist build/$(PRESET) "$(OUT)"
	@echo "pytriton-dist: $(OUT)"

install: ## install into PREFIX=/usr/local (below DESTDIR=, if given)
	@$(DEPS) -q run
	@$(CONFIGURE)
	@cmake --build --preset $(PRESET) --target product
	@DESTDIR=$(DESTDIR) cmake --install build/$(PRESET) --prefix $(PREFIX)

uninstall: ## remove what `make install` has put there (the list is build/<preset>/install_manifest.txt; same DESTDIR=)
	@tools/uninstall build/$(PRESET) $(DESTDIR)

deb: ## make a Debian package of the server and its systemd unit in OUT=build/deb (docs/deployment.md)
	@$(DEPS) -q run package
	@$(CONFIGURE)
	@cmake --build --preset $(PRESET) --target product
	@tools/package-deb build/$(PRESET) "$(or $(filter-out build/pytriton-dist,$(OUT)),build/deb)"

tag: ## tag the commit that is checked out as the release that CMakeLists.txt and CHANGELOG.md name
	@tools/version --tag

reference: ## install the genuine Triton into .deps/reference (oracle of tests, other side of benchmarks)
	@tools/reference

clean: ## remove build/ and site/ (what `make deps` brought stays in .deps/)
	@rm -rf build site

help: ## list the targets
	@sed -n 's/^\([a-z-]*\): ## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 12
