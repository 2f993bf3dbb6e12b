// Two sources with numbered beats, pauses and resets into rl_slow_tx; checks
// each cycle and ends with "ok" and what passed.
module arbiter;
    reg clk = 0, rst = 1, cv = 0, sv = 0, cl = 0, sl = 0, ready = 0;
    reg [511:0] cd = 0, sd = 0;
    reg held = 0, part = 0, side = 0, hl = 0;
    reg [511:0] hd = 0;
    wire cr, sr, v, l, u;
    wire [511:0] d;
    wire [63:0] k;
    integer i, cores = 0, slows = 0, since = 0, resets = 0, seed = 1;
    rl_slow_tx dut (.clk(clk), .rst(rst), .s_core_tvalid(cv), .s_core_tready(cr), .s_core_tdata(cd), .s_core_tkeep({64{1'b1}}),
        .s_core_tlast(cl), .s_core_tuser(1'b0), .s_slow_tvalid(sv), .s_slow_tready(sr), .s_slow_tdata(sd),
        .s_slow_tkeep(64'd1), .s_slow_tlast(sl), .m_axis_tvalid(v), .m_axis_tready(ready), .m_axis_tdata(d),
        .m_axis_tkeep(k), .m_axis_tlast(l), .m_axis_tuser(u));
    task fail; begin $display("fail at %0d", i); $finish; end endtask
    initial begin
        for (i = 0; i < 100000; i = i + 1) begin
            rst = i == 0 || ($random(seed) & 511) == 0;
            ready = ($random(seed) & 3) != 0;
            if (!cv) begin cv = ($random(seed) & 3) != 0; cd = {1'b0, 479'd0, $random(seed)}; cl = ($random(seed) & 3) == 0; end
            if (!sv) begin sv = ($random(seed) & 3) == 0; sd = {1'b1, 479'd0, $random(seed)}; sl = $random(seed) & 1; end
            #1;
            if (rst && (v || cr || sr)) fail;
            if (!rst) begin
                if (v === 1'bx || (cr && sr) || (held && (!v || d !== hd || l !== hl))) fail;
                if (v && d !== (d[511] ? sd : cd) || v && k !== (d[511] ? 64'd1 : {64{1'b1}})) fail;
                if (v && l !== (d[511] ? sl : cl)) fail;
                if (v && part && d[511] != side) fail;
                if (!v && !part && (cv || sv)) fail;
                if ((cr && cv) != (v && ready && !d[511]) || (sr && sv) != (v && ready && d[511])) fail;
            end
            held = v && !ready && !rst; hd = d; hl = l;
            if (v && ready && !rst) begin
                part = !l; side = d[511];
                if (d[511]) begin slows = slows + 1; since = 0; end
                else begin cores = cores + 1; if (l && sv) since = since + 1; end
                if (since > 1) fail;
            end
            if (rst) begin resets = resets + 1; part = 0; since = 0; cv = 0; sv = 0; end
            else begin if (cr) cv = 0; if (sr) sv = 0; end
            clk = 1; #1; clk = 0;
        end
        if (cores < 1000 || slows < 1000 || resets < 50) fail;
        $display("ok"); $finish;
    end
endmodule
