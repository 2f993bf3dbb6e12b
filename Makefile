# rocelink. `make demo` shows it, `make test` proves it; `make help` lists the rest.

GO       ?= go
BUILD    := build
BIN      := $(BUILD)/bin

# Real RDMA devices need a C compiler and libibverbs's headers. Without them
# rocelinkd is built without, and says so when it is asked for one.
ifneq ($(and $(wildcard /usr/include/infiniband/verbs.h),$(shell command -v $(CC))),)
RDMA := CGO_ENABLED=1 $(GO) build -tags ibverbs
else
RDMA := CGO_ENABLED=0 $(GO) build
endif

# Settings of the demo, as in `make demo DURATION=30 DROP=1`.
DURATION ?=
VERBS    ?=
FRAME    ?=
RATE     ?=
COUNT    ?= 0
MTU      ?= 0
SOURCE   ?=
SINK     ?=
DROP     ?=
DUPLICATE ?=
REORDER  ?=
CORRUPT  ?=
DELAY    ?=
SEED     ?= 0
PCAP     ?=
# rtl: the RTL, verilated, in place of the software fabric in Go.
FABRIC   ?=
FUZZTIME ?= 3s
# Tiers of the tests, as in `make test TIERS='unit verbs'`.
TIERS    ?= unit fuzz verbs package lab images rtl

BOARD    ?= qemu-versal
# The demo runs boardd on an emulated board only if one is asked for.
DEMO_BOARD := $(if $(filter command line environment,$(origin BOARD)),$(BOARD))

.PHONY: help demo build test check bench fleet generate tools package lab lab-uml image run-board rtl-report rtl-tools clean
.DEFAULT_GOAL := help

help:
	@echo 'make demo      run board, fabric and host on this machine (DURATION=10 VERBS= FRAME= RATE= COUNT= MTU='
	@echo '               SOURCE= SINK= DROP= DUPLICATE= REORDER= CORRUPT= DELAY= SEED= PCAP=;'
	@echo '               BOARD=qemu-versal runs boardd on emulated ARM cores;'
	@echo '               FABRIC=rtl takes the RTL, verilated, for the fabric: needs verilator and g++)'
	@echo "make test      install what the tests need where that is possible, then run all of them"
	@echo "               (some: TIERS='unit fuzz verbs package lab images rtl')"
	@echo 'make check     gofmt, vet, staticcheck'
	@echo 'make bench     measure the data path'
	@echo 'make fleet     play the status of BOARDS=1000 boards against one rocelinkd and measure'
	@echo 'make image     the boot image of BOARD=$(BOARD), into $(BUILD)/$(BOARD) (rocelink-image boards lists them;'
	@echo '               SIGN=key.pem signs it, so that rocectl update can replace it later)'
	@echo 'make run-board boot that image in QEMU against the software fabric (BOARD=qemu-versal or qemu-zcu102)'
	@echo 'make lab       boot Linux with rdma_rxe in QEMU and test against it (long)'
	@echo 'make lab-uml   the same on a user-mode Linux that it builds first (longer; says more about speed)'
	@echo 'make rtl-report  cycles a packet, goodput, area and depth of the fabric in RTL (needs verilator, g++ and yosys)'
	@echo 'make package   rocelinkd and rocectl as .deb and .rpm, into $(BUILD)/packages'
	@echo 'make build     the programs, into $(BIN)'
	@echo 'make generate  what follows from the register table'
	@echo 'make clean     remove $(BUILD)'

build:
	@mkdir -p $(BIN)
	@echo 'building the programs into $(BIN)'
	@CGO_ENABLED=0 $(GO) build -trimpath -o $(BIN)/ ./fpga/model/cmd/rocelink-fabric ./firmware/cmd/boardd \
		./agent/cmd/rocectl ./agent/cmd/rocelink-demo ./agent/cmd/rocelink-fleet
	@$(RDMA) -trimpath -o $(BIN)/ ./agent/cmd/rocelinkd

demo: build $(if $(DEMO_BOARD),image) $(if $(filter rtl,$(FABRIC)),$(BIN)/rocelink-fabric-rtl)
	@exec $(BIN)/rocelink-demo --programs $(BIN) --dir $(BUILD)/demo --duration '$(DURATION)' --verbs '$(VERBS)' \
		--frame '$(FRAME)' --rate '$(RATE)' --count '$(COUNT)' --mtu '$(MTU)' --source '$(SOURCE)' --sink '$(SINK)' \
		--drop '$(DROP)' --duplicate '$(DUPLICATE)' --reorder '$(REORDER)' --corrupt '$(CORRUPT)' --delay '$(DELAY)' \
		--seed '$(SEED)' --pcap '$(PCAP)' --board '$(DEMO_BOARD)' --fabric '$(FABRIC)'

rtl-tools:
	@missing=; for t in verilator g++ pkg-config; do command -v $$t >/dev/null 2>&1 || missing="$$missing $$t"; done; \
		[ -z "$$missing" ] || { echo "the fabric in RTL needs what is not installed:$$missing (on Debian: apt-get install$$missing)" >&2; exit 1; }

# The RTL as C++, made anew when a source of it changed.
VERILATED := fpga/sim/.verilated
$(VERILATED): fpga/sim/verilate $(wildcard fpga/rtl/*.sv fpga/rtl/*.vh fpga/regs/*.vh) | rtl-tools
	@echo 'turning the RTL into C++'
	@fpga/sim/verilate core/Vrealtime
	@touch $@

# Without -trimpath it comes from the cache after the tests.
$(BIN)/rocelink-fabric-rtl: $(VERILATED) FORCE | rtl-tools
	@echo 'compiling it: a minute or two, unless it is cached'
	@CGO_ENABLED=1 $(GO) build -tags verilator,realtime -o $(BIN)/ ./fpga/sim/cmd/rocelink-fabric-rtl

test: tools
	@GO='$(GO)' FUZZTIME='$(FUZZTIME)' TIERS='$(TIERS)' .ci/test

check:
	@GO='$(GO)' .ci/check

bench:
	@GO='$(GO)' .ci/bench

# As in make fleet BOARDS=1000 SEGMENT=10s.
BOARDS   ?= 1000
SEGMENT  ?= 10s
fleet: build
	@exec $(BIN)/rocelink-fleet --programs $(BIN) --dir $(BUILD)/fleet --boards '$(BOARDS)' --segment '$(SEGMENT)'

lab:
	@GO='$(GO)' .ci/lab

lab-uml:
	@GO='$(GO)' .ci/lab-uml

rtl-report:
	@GO='$(GO)' .ci/rtl report

package:
	@GO='$(GO)' .ci/package

$(BIN)/rocelink-image: FORCE
	@CGO_ENABLED=0 $(GO) build -trimpath -o $(BIN)/ ./images/cmd/rocelink-image

image: $(BIN)/rocelink-image
	@$(BIN)/rocelink-image build --board '$(BOARD)' --out '$(BUILD)/$(BOARD)' --cache '$(BUILD)/cache' $(if $(SIGN),--sign '$(SIGN)')

run-board: build image
	@mkdir -p $(BUILD)/demo
	@exec $(BIN)/rocelink-image run --board '$(BOARD)' --serve-nats 127.0.0.1:4222 --fabric $(BIN)/rocelink-fabric \
		--fabric-arg=--sim=$(BUILD)/demo/fabric.regs.sim

FORCE:

generate:
	$(GO) generate ./...

tools:
	@.ci/tools

clean:
	rm -rf $(BUILD)
