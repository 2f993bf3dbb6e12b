package main

import (
	"bytes"
	"fmt"
	"strings"

	"rocelink/fpga/regs"
)

// words are written in capitals and are one word all the same.
var words = strings.NewReplacer("RNR", "Rnr", "NAKs", "Naks", "KHz", "Khz", "IP", "Ip", "RKey", "Rkey", "PKey", "Pkey")

// snake turns CamelCase into lower_snake.
func snake(name string) string {
	var out strings.Builder
	rs := []rune(words.Replace(name))
	for i, r := range rs {
		if upper(r) && i > 0 && (!upper(rs[i-1]) || i+1 < len(rs) && !upper(rs[i+1])) {
			out.WriteByte('_')
		}
		out.WriteRune(r)
	}
	if s := strings.ToLower(out.String()); s != "config" {
		return s
	}
	return "config_word" // config is a word of the language
}

func upper(r rune) bool { return r >= 'A' && r <= 'Z' }

// fixed reports a register that always reads its reset value.
func fixed(r regs.Register) bool { return r.Access == regs.RO && r.Reset != 0 }

// counted reports a counter of a queue pair or of a stream. These are latched into a memory
// (rl_sweep), where a number of five bits stands for a register.
func counted(r regs.Register) bool {
	return r.Words() == 2 && strings.HasPrefix(r.Name, "Stat") && r.Name != "StatSourceDropped" && r.Name != "StatReleased"
}

// streamCounts is where a stream's first counter is moved to, so that their
// numbers are not those of the queue pairs'.
const streamCounts = 5

// countHeader numbers the counters: bits 7..3 of a queue pair's address, and for
// a stream as much less as streamCounts asks.
func countHeader() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "// %s\n// Numbers of the counters of a queue pair and of a stream.\n\n", notice)
	seen := map[uint32]string{}
	number := func(blk regs.Block, less uint32) {
		for _, r := range blk.Regs {
			if !counted(r) {
				continue
			}
			n := (r.Offset/8 - less) % 32
			if seen[n] != "" {
				panic("rtl/gen: " + r.Name + " has the number of " + seen[n])
			}
			seen[n] = r.Name
			fmt.Fprintf(&b, "localparam [4:0] RL_COUNT_%s = 5'd%d;\n", strings.ToUpper(strings.TrimPrefix(snake(r.Name), "stat_")), n)
		}
	}
	stream := block("Stream")
	var less uint32
	for _, r := range stream.Regs {
		if counted(r) {
			less = r.Offset/8%32 - streamCounts
			break
		}
	}
	number(block("Core"), 0)
	number(stream, less)
	fmt.Fprintf(&b, "localparam [4:0] RL_COUNT_STREAM = 5'd%d; // less than the address\n", less)
	return b.Bytes()
}

// registerFile is the module that decodes a block's addresses.
func registerFile(blk regs.Block) []byte {
	var b bytes.Buffer
	module := "rl_" + snake(blk.Name) + "_regs"
	fmt.Fprintf(&b, "// %s\n", notice)
	fmt.Fprintf(&b, "//\n// Registers of the block %q. What software writes comes out, what it reads\n", blk.Title)
	fmt.Fprint(&b, "// goes in. A read is answered in the next cycle; a hole reads as 0. Writing a\n"+
		"// command while one runs changes nothing; clear ends it.\n`default_nettype none\n\n")
	fmt.Fprintf(&b, "module %s (\n    input  wire         clk,\n    input  wire         rst,\n"+
		"    input  wire [6:0]   rst_word, // goes over all words during a reset\n\n", module)
	fmt.Fprint(&b, "    // Bus\n    input  wire         write,\n    input  wire [9:0]   address,\n    input  wire [31:0]  wdata,\n    output wire [31:0]  rdata,\n"+
		"    output reg          counted, // the address is a counter's, which is not here\n\n    // Registers\n")
	var ports, reset, writes, counts, stored []string
	reads := map[uint32]string{} // by word
	var runs []string            // writes of commands
	resets := "32'h0"            // of a word of the memory
	for _, r := range blk.Regs {
		name := snake(r.Name)
		bits := 32 * r.Words()
		if counted(r) {
			for w := range r.Words() {
				counts = append(counts, fmt.Sprintf("10'h%03X", r.Offset+uint32(4*w)))
			}
			continue
		}
		var parts []string
		for w := range r.Words() {
			value := fmt.Sprintf("%s[%d:%d]", name, 32*w+31, 32*w)
			if fixed(r) {
				value = fmt.Sprintf("32'h%08X", r.Reset)
			}
			parts = append(parts, value)
			if r.Access == regs.RW {
				// Read from a memory: a multiplexer costs a LUT for three words and bit.
				stored = append(stored, fmt.Sprintf("10'h%03X", r.Offset+uint32(4*w)))
				if r.Reset != 0 {
					resets = fmt.Sprintf("(rst_word == 7'h%02X) ? 32'h%X : %s", r.Offset/4+uint32(w), uint32(r.Reset>>(32*w)), resets)
				}
				continue
			}
			reads[r.Offset/4+uint32(w)] = value
		}
		switch {
		case fixed(r):
			continue
		case r.Access == regs.RW || r.Access == regs.SC:
			ports = append(ports, fmt.Sprintf("    output reg  [%d:0]%s %s", bits-1, strings.Repeat(" ", 4), name))
			reset = append(reset, fmt.Sprintf("            %s <= %d'h%X;", name, bits, r.Reset))
			if r.Access == regs.SC {
				ports = append(ports, fmt.Sprintf("    output reg          %s_runs", name), fmt.Sprintf("    input  wire         %s_clear", name))
				reset = append(reset, fmt.Sprintf("            %s_runs <= 1'b0;", name))
				runs = append(runs, fmt.Sprintf("            if (%[1]s_clear) begin\n                %[1]s <= 0;\n                %[1]s_runs <= 1'b0;\n"+
					"            end else if (write && address == 10'h%03[2]X && !%[1]s_runs) begin\n                %[1]s <= wdata;\n                %[1]s_runs <= wdata != 0;\n            end\n",
					name, r.Offset))
				break
			}
			for w, word := range parts {
				writes = append(writes, fmt.Sprintf("                10'h%03X: %s <= wdata;", r.Offset+uint32(4*w), word))
			}
		default:
			ports = append(ports, fmt.Sprintf("    input  wire [%d:0]%s %s", bits-1, strings.Repeat(" ", 4), name))
		}
	}
	fmt.Fprintf(&b, "%s\n);\n\n", strings.Join(ports, ",\n"))
	fmt.Fprintf(&b, `    // What software writes is read from a memory of all that was written.
    wire [31:0] written;
    reg  [31:0] read;
    reg         stored;
    rl_store #(.WIDTH(32), .ADDRESS_BITS(7)) words (
        .clk(clk), .write(rst || write && !address[9]), .waddress(rst ? rst_word : address[8:2]),
        .wdata(rst ? %s : wdata),
        .read(1'b1), .raddress(address[8:2]), .rdata(written)
    );
    assign rdata = stored ? written : read;

`, resets)
	flag := func(name string, addresses []string) {
		fmt.Fprintf(&b, "        case (address)\n            %s: %s <= 1'b1;\n            default: %[2]s <= 1'b0;\n        endcase\n",
			strings.Join(addresses, ", "), name)
	}
	fmt.Fprintf(&b, "    always @(posedge clk) begin\n        read <= (address[1:0] != 2'd0) ? 32'h0 :\n                %s;\n",
		choose(reads, 8, 0, "                "))
	flag("stored", stored)
	flag("counted", counts)
	fmt.Fprint(&b, "    end\n\n")
	fmt.Fprint(&b, "    always @(posedge clk) begin\n        if (rst) begin\n", strings.Join(reset, "\n"), "\n        end else begin\n")
	fmt.Fprint(&b, strings.Join(runs, ""))
	fmt.Fprint(&b, "            if (write)\n                case (address)\n", strings.Join(writes, "\n"),
		"\n                default: ;\n                endcase\n        end\n    end\n\nendmodule\n\n`default_nettype wire\n")
	return b.Bytes()
}

// choose is the word of an address as choices between two, which are as many LUT levels
// as pairs of address bits: a case has a decoder before it. words are those that begin
// with the bits of base above bits.
func choose(words map[uint32]string, bits, base uint32, indent string) string {
	some := false
	for w := range words {
		some = some || w>>bits == base>>bits
	}
	if !some {
		return "32'h0"
	}
	if bits == 0 {
		return words[base]
	}
	bits--
	high, low := choose(words, bits, base|1<<bits, indent+"    "), choose(words, bits, base, indent+"    ")
	between := " "
	if bits >= 2 {
		between = "\n" + indent
	}
	switch {
	case high == low:
		return high
	case high == "32'h0":
		return fmt.Sprintf("address[%d] ? 32'h0 :%s%s", bits+2, between, low)
	case low == "32'h0":
		return fmt.Sprintf("!address[%d] ? 32'h0 :%s%s", bits+2, between, high)
	}
	if strings.Contains(high, "?") {
		high = "(" + high + ")"
	}
	if strings.Contains(low, "?") {
		low = "(" + low + ")"
	}
	return fmt.Sprintf("address[%d] ? %s :%s%s", bits+2, high, between, low)
}

// block returns a block of the register table by name.
func block(name string) regs.Block {
	for _, b := range regs.Blocks() {
		if b.Name == name {
			return b
		}
	}
	panic("rtl/gen: the register table has no block " + name)
}
