// Drives rl_slow_rx with the cycles of a file and prints what comes out.
module bench;
    reg clk = 0;
    reg rst, ready, valid, last, user;
    reg [63:0] keep;
    reg [511:0] data;
    wire cv, cl, sv, sl, cu;
    wire [511:0] cd, sd;
    wire [63:0] ck, sk, dropped;
    integer f;
    rl_slow_rx #(.BITS(3)) dut (.clk(clk), .rst(rst), .s_axis_tvalid(valid), .s_axis_tdata(data), .s_axis_tkeep(keep),
        .s_axis_tlast(last), .s_axis_tuser(user), .m_core_tvalid(cv), .m_core_tdata(cd), .m_core_tkeep(ck),
        .m_core_tlast(cl), .m_core_tuser(cu), .m_slow_tvalid(sv), .m_slow_tready(ready), .m_slow_tdata(sd),
        .m_slow_tkeep(sk), .m_slow_tlast(sl), .dropped(dropped));
    initial begin
        f = $fopen("cycles", "r");
        while ($fscanf(f, "%b %b %b %b %b %h %h\n", rst, ready, valid, last, user, keep, data) == 7) begin
            #1;
            $display("%b %b%b %h %h %b %b %h %h %0d", cv, cl, cu, ck, cd, sv, sl, sk, sd, dropped);
            clk = 1; #1; clk = 0;
        end
        $finish;
    end
endmodule
