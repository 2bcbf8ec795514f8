# SPDX-License-Identifier: GPL-2.0-or-later
# whelp's build: `make help` lists the targets. A new .c file in one of the source folders, or a new
# tests/unit/test_*.c, is picked up by itself.

VERSION := 0.1.0

O      ?= build
PREFIX ?= /usr/local
ifeq ($(origin CC),default)
CC     := gcc
endif
CFLAGS ?= $(if $(DEBUG),-O0 -g3,-O2 -g)
WERROR ?= -Werror
IASL   ?= iasl
PKG_CONFIG ?= pkg-config
export O CC

# As many jobs as CPUs, unless the command line says otherwise; a make below this one shares them.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc)
endif
MAKEFLAGS += --no-builtin-rules --no-print-directory

.DELETE_ON_ERROR:
.SUFFIXES:
.DEFAULT_GOAL := all
.PHONY: all unit check check-long demo bench-boot bench-features bench-performance bench-policy bench-ring bench-programs \
	bench-threads install install-strip clean distclean help FORCE

# ---- what is needed --------------------------------------------------------------------------------
# Asked only by goals that compile: demo, check and the benches install what is missing first, then call
# make again.

without_tools := help clean distclean check check-long demo bench-boot bench-features bench-performance bench-policy \
	bench-ring bench-threads
goals := $(or $(MAKECMDGOALS),all)

# $(call need,COMMAND,PACKAGE)
need = $(if $(shell command -v $(firstword $(1))),,$(error $(1) is missing; on Debian: apt-get install $(2)))
# $(call need_lib,MODULE,PACKAGE)
need_lib = $(if $(shell $(PKG_CONFIG) --exists $(1) && echo yes),,$(error \
	the library $(1) is missing; on Debian: apt-get install $(2)))

ifneq ($(filter-out $(without_tools),$(goals)),)
$(call need,$(CC),$(firstword $(CC)))
$(call need,$(PKG_CONFIG),pkg-config)
$(call need,$(IASL),acpica-tools)
$(call need_lib,jansson,libjansson-dev)
$(call need_lib,liburing,liburing-dev)
lib_cflags := $(shell $(PKG_CONFIG) --cflags jansson liburing)
lib_libs   := $(shell $(PKG_CONFIG) --libs jansson liburing)
ifneq ($(filter unit $(O)/asan/% $(O)/tsan/%,$(goals)),)
$(call need_lib,cmocka,libcmocka-dev)
test_cflags := $(shell $(PKG_CONFIG) --cflags cmocka)
test_libs   := $(shell $(PKG_CONFIG) --libs cmocka)
endif
# A checkout's version names its commit; without git or .git the number alone has to do.
commit := $(shell test -e .git && git describe --always --dirty --exclude '*' 2>/dev/null)
endif

# ---- files and flags -------------------------------------------------------------------------------

sources := $(wildcard $(addsuffix /*.c,vmm vmm/x86 devices devices/virtio devices/net))
headers := $(wildcard $(addsuffix /*.h,vmm vmm/x86 devices devices/virtio devices/net))
tests   := $(wildcard tests/unit/test_*.c)
helpers := $(wildcard tests/unit/lib*.c tests/driver/*.c tests/bench/policy_*.c)
# Tests with threads run a second time, under TSan.
TSAN_TESTS ?= $(wildcard tests/unit/test_*_threads.c)
# `make unit T=options` runs tests/unit/test_*options*.c only.
T ?=
run_asan := $(if $(T),$(foreach t,$(T),$(filter $(wildcard tests/unit/test_*$(t)*.c),$(tests))),$(tests))
run_tsan := $(filter $(run_asan),$(TSAN_TESTS))

objects  := $(sources:%.c=$(O)/obj/%.o)
# What a test program may link: all but main().
units     = $(patsubst %.c,$(O)/$(1)/%.o,$(filter-out vmm/main.c,$(sources)) $(helpers))
# $(call programs,VARIANT,TESTS)
programs  = $(patsubst %.c,$(O)/$(1)/%,$(2))

warnings := -Wall -Wextra $(WERROR) -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wformat=2 \
	-Wpointer-arith -Wwrite-strings -Wundef
common   := -std=gnu17 -D_GNU_SOURCE -I. -I$(O)/obj -I$(O)/obj/vmm/x86 $(warnings) -pthread -MMD -MP
hardened := -fstack-protector-strong $(if $(filter -O0,$(CFLAGS)),,-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)

$(O)/obj/%:  flags := $(common) $(CFLAGS) $(CPPFLAGS) -fPIE -ffunction-sections -fdata-sections $(hardened)
# For bench-ring: the same program without counters.
$(O)/uncounted/%: flags = $(common) $(CFLAGS) $(CPPFLAGS) -fPIE -ffunction-sections -fdata-sections $(hardened) \
	-include tests/bench/uncounted.h
$(O)/asan/%: flags := $(common) -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined \
	-fno-sanitize-recover=all
$(O)/tsan/%: flags := $(common) -O1 -g -fno-omit-frame-pointer -fsanitize=thread
link := -pie -pthread -Wl,--gc-sections -Wl,--as-needed -Wl,-z,relro -Wl,-z,now

# ---- the program -----------------------------------------------------------------------------------

all: $(O)/whelp

$(O)/whelp: $(objects) $(O)/obj/layers
	@echo '  LINK    $@'
	@$(CC) $(CFLAGS) $(link) $(LDFLAGS) -o $@ $(objects) $(lib_libs)

# $(call compile,VARIANT): changed flags or another compiler rebuild the variant's objects.
define compile
$(O)/$(1)/%.o: %.c $(O)/$(1)/flags | $(O)/obj/vmm/version.h
	@mkdir -p $$(@D)
	@echo '  CC      $$@'
	@$$(CC) $$(flags) $$(lib_cflags) $$(test_cflags) -c -o $$@ $$<

$(O)/$(1)/vmm/x86/acpi.o: $(O)/obj/vmm/x86/dsdt.hex
$(O)/$(1)/vmm/main.o: $(O)/obj/vmm/version.h

$(O)/$(1)/flags: FORCE
	$$(call update,$$(CC) $$(flags) $$(if $$(filter obj,$(1)),$$(LDFLAGS)))
endef
$(foreach variant,obj asan tsan uncounted,$(eval $(call compile,$(variant))))

# Writes $(1) into the target when that changes it.
update = @mkdir -p $(@D); echo '$(1)' | cmp -s - $@ || echo '$(1)' >$@

$(O)/obj/vmm/version.h: FORCE
	$(call update,#define WHELP_VERSION "$(VERSION)$(if $(commit),+$(commit))")

# iasl's table as a C array.
$(O)/obj/vmm/x86/dsdt.hex: vmm/x86/dsdt.asl
	@mkdir -p $(@D)
	@echo '  IASL    $@'
	@$(IASL) -ve -tc -p $(basename $@) $< >$(basename $@).log 2>&1 || { cat $(basename $@).log >&2; exit 1; }

$(O)/obj/layers: tools/checklayers $(sources) $(headers)
	@mkdir -p $(@D)
	@tools/checklayers
	@touch $@

-include $(shell find $(O)/obj $(O)/asan $(O)/tsan $(O)/uncounted -name '*.d' 2>/dev/null)

# ---- tests -----------------------------------------------------------------------------------------

define link_tests
$(call programs,$(1),$(tests)): $(O)/$(1)/%: $(O)/$(1)/%.o $(call units,$(1))
	@echo '  LINK    $$@'
	@$$(CC) $$(flags) -o $$@ $$< $(call units,$(1)) $$(lib_libs) $$(test_libs)
endef
$(foreach variant,asan tsan,$(eval $(call link_tests,$(variant))))
.SECONDARY: $(foreach variant,asan tsan,$(call units,$(variant)) $(tests:%.c=$(O)/$(variant)/%.o))

unit: $(call programs,asan,$(run_asan)) $(call programs,tsan,$(run_tsan)) $(O)/obj/layers
	@tools/unit $(filter-out $(O)/obj/layers,$^)

# ---- bench-ring's programs: what is shipped, with a driver and without main() ----------------------

bench_parts = $(filter-out vmm/main.c,$(sources)) \
	$(filter-out tests/bench/measure.c tests/bench/policy%,$(wildcard tests/bench/*.c)) \
	$(filter-out tests/driver/nic.c,$(wildcard tests/driver/*.c))
counting = $(filter devices/virtio/net%,$(sources))

$(O)/obj/tests/bench/ring: $(bench_parts:%.c=$(O)/obj/%.o)
$(O)/uncounted/tests/bench/ring: $(patsubst %.c,$(O)/obj/%.o,$(filter-out $(counting),$(bench_parts))) \
	$(counting:%.c=$(O)/uncounted/%.o)
$(O)/obj/tests/bench/ring $(O)/uncounted/tests/bench/ring:
	@mkdir -p $(@D)
	@echo '  LINK    $@'
	@$(CC) $(CFLAGS) $(link) $(LDFLAGS) -o $@ $^ $(lib_libs)

bench-programs: $(O)/obj/tests/bench/ring $(O)/uncounted/tests/bench/ring

# The scripts' own makes start anew: none of this one's flags and job slots.
script = env -u MAKELEVEL -u MAKEFLAGS -u MFLAGS -u MAKEOVERRIDES

check:
	@$(script) tools/check

check-long:
	@$(script) tools/check --long

demo bench-boot bench-features bench-threads:
	@$(script) tools/install-deps $@
	@$(MAKE) all
	@$(script) tools/$@

bench-ring:
	@$(script) tools/install-deps $@
	@$(MAKE) all bench-programs
	@$(script) tools/$@

bench-performance:
	@$(script) tools/install-deps $@
	@$(MAKE) all bench-programs $(O)/bench/policy
	@$(script) tools/$@

# The simulator of bench-policy: the policies and no more of the program.
policy := $(patsubst %.c,$(O)/obj/%.o,$(wildcard tests/bench/policy*.c devices/virtio/mitigate*.c) tests/bench/measure.c)

$(O)/bench/policy: $(policy)
	@mkdir -p $(@D)
	@echo '  LINK    $@'
	@$(CC) $(CFLAGS) $(link) $(LDFLAGS) -o $@ $(policy)

bench-policy:
	@$(script) tools/install-deps $@
	@$(MAKE) $(O)/bench/policy
	@$(script) tools/$@

# ---- the rest --------------------------------------------------------------------------------------

install: $(O)/whelp
	install -D -m 755 $< $(DESTDIR)$(PREFIX)/bin/whelp

install-strip: $(O)/whelp
	install -D -m 755 -s $< $(DESTDIR)$(PREFIX)/bin/whelp

clean:
	rm -rf $(O)/whelp $(O)/obj $(O)/asan $(O)/tsan $(O)/uncounted

distclean:
	rm -rf $(O)

help:
	@echo 'Targets:'
	@echo '  all            build $(O)/whelp (the default)'
	@echo '  demo           from nothing to a guest on a tap: installs, builds, boots, pings, measures'
	@echo '  check          every test: installs what they need, then unit and those that boot kernels'
	@echo '  check-long     the same with more rounds and sizes, and what takes longer'
	@echo '  unit           the tests that need neither root nor KVM, under sanitizers; T=NAME picks some'
	@echo '  bench-boot     time to a guest'"'"'s init, beside QEMU'
	@echo '  bench-features netperf with each feature of the network device off or on, beside the full set'
	@echo '  bench-performance  docs/performance.md from full runs of the others: targets, tables, plots'
	@echo '  bench-policy   mitigation policies on recorded and made-up traffic, simulated, beside the offline optimum'
	@echo '  bench-ring     the network device by itself: time per frame, beside a bare loop on the same tap'
	@echo '  bench-threads  the tables of the threads that whelp comes from, re-run; tools/netbench measures anything else'
	@echo '  install        copy whelp to PREFIX/bin; install-strip strips it too'
	@echo '  clean          remove what was compiled; distclean also what was downloaded'
	@echo 'Variables:'
	@echo '  CC=clang       the compiler, gcc or clang (default gcc)'
	@echo '  O=DIR          where everything is built (default build)'
	@echo '  DEBUG=1        no optimisation, all debug information'
	@echo '  CFLAGS, CPPFLAGS, LDFLAGS, WERROR= (warnings are no errors), PREFIX (default /usr/local), DESTDIR'
