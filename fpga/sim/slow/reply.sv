// Drives rl_slow_reply with the beats of a file, pauses (of 256 cycles) and
// resets (of 65536 cycles), and prints what happens: I and its number where a
// frame was taken, O and a beat that left, R at a reset, C and the counters at the
// end, F and a cycle where an output broke the rules of its stream, or after which
// nothing happened for long.
module reply;
    reg clk = 0, rst = 1, iv = 0, il = 0, ready = 0;
    reg [511:0] id;
    reg [63:0] ik;
    reg more = 1, held = 0, part = 0, taken, hl;
    reg [511:0] hd;
    reg [63:0] hk;
    wire ir, v, l;
    wire [511:0] d;
    wire [63:0] k, arps, echos, drops;
    reg [47:0] mac;
    reg [127:0] ip;
    integer f, i, frame = 0, quiet = 0, idle = 0, seed, in_pause, out_pause, resets;
    rl_slow_reply #(.BITS(3)) dut (.clk(clk), .rst(rst), .local_mac(mac), .local_ip(ip), .s_axis_tvalid(iv),
        .s_axis_tready(ir), .s_axis_tdata(id), .s_axis_tkeep(ik), .s_axis_tlast(il), .m_axis_tvalid(v),
        .m_axis_tready(ready), .m_axis_tdata(d), .m_axis_tkeep(k), .m_axis_tlast(l), .answered_arp(arps),
        .answered_echo(echos), .dropped(drops));
    task next; if (more) more = $fscanf(f, "%b %h %h\n", il, ik, id) == 3; endtask
    initial begin
        i = $value$plusargs("mac=%h", mac);
        i = $value$plusargs("ip=%h", ip);
        i = $value$plusargs("seed=%d", seed);
        i = $value$plusargs("in=%d", in_pause);
        i = $value$plusargs("out=%d", out_pause);
        i = $value$plusargs("resets=%d", resets);
        f = $fopen("frames", "r");
        next;
        for (i = 0; quiet < 500; i = i + 1) begin
            rst = i == 0 || ($random(seed) & 65535) < resets;
            ready = ($random(seed) & 255) >= out_pause;
            if (!iv && more && i > 0) iv = ($random(seed) & 255) >= in_pause;
            #1;
            quiet = more || v ? 0 : quiet + 1;
            if (i > 0 && (v === 1'bx || ir === 1'bx || rst && (v || ir))) $display("F %0d unknown, or in reset", i);
            if (!rst) begin
                if (held && (!v || d !== hd || k !== hk || l !== hl)) $display("F %0d a beat changed", i);
                if (part && !v) $display("F %0d a gap", i);
                if (v && ready) $display("O %b %h %h", l, k, d);
            end
            held = v && !ready && !rst; hd = d; hk = k; hl = l;
            part = !rst && v ? !(ready && l) : part && !rst;
            taken = iv && ir;
            idle = taken || v && ready || rst ? 0 : idle + 1;
            if (more && idle == 5000) begin $display("F %0d stuck", i); $finish; end
            clk = 1; #1; clk = 0;
            if (rst && i > 0) begin
                $display("R");
                // The rest of the frame is not sent.
                while (more && !il) next;
                frame = frame + 1;
                next;
                iv = 0;
            end else if (taken) begin
                iv = 0;
                if (il) begin $display("I %0d", frame); frame = frame + 1; end
                next;
            end
        end
        $display("C %0d %0d %0d", arps, echos, drops);
        $finish;
    end
endmodule
