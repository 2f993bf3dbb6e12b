// Runs the shell's netlist, core and all, in four states: everything begins
// unknown, a reset of one cycle must be enough to make it known, and three SENDs
// and the answers to an ARP request and a ping leave without an unknown bit. In a
// netlist a choice by an unknown bit is unknown, while a
// simulator of the source takes one branch and hides it.
`timescale 1ns / 1ps

module fourstate;

    reg          clk = 0;
    reg          rst = 0;
    reg          awvalid = 0, wvalid = 0, arvalid = 0;
    reg  [15:0]  address = 0;
    reg  [31:0]  wdata = 0;
    wire         awready, bvalid, arready, rvalid;
    wire [1:0]   bresp, rresp;
    wire [31:0]  rdata;
    wire         tvalid, tlast, tuser;
    wire [511:0] tdata;
    wire [63:0]  tkeep;
    wire [63:0]  arps, echos, others, overruns;
    reg          in_valid = 0, in_last = 0;
    reg  [511:0] in_data = 0;
    reg  [63:0]  in_keep = 0;
    integer      sends = 0, answers = 0, beats = 0, errors = 0;
    reg          known = 0, first = 1;

    rl_shell shell (
        .clk(clk), .rst(rst), .boot(32'd1), .link_up(1'b1),
        .s_axil_awvalid(awvalid), .s_axil_awready(awready), .s_axil_awaddr({1'b0, address}),
        .s_axil_wvalid(wvalid), .s_axil_wready(), .s_axil_wdata(wdata), .s_axil_wstrb(4'hf),
        .s_axil_bvalid(bvalid), .s_axil_bready(1'b1), .s_axil_bresp(bresp),
        .s_axil_arvalid(arvalid), .s_axil_arready(arready), .s_axil_araddr({1'b0, address}),
        .s_axil_rvalid(rvalid), .s_axil_rready(1'b1), .s_axil_rdata(rdata), .s_axil_rresp(rresp),
        .m_axis_tvalid(tvalid), .m_axis_tready(1'b1), .m_axis_tdata(tdata),
        .m_axis_tkeep(tkeep), .m_axis_tlast(tlast), .m_axis_tuser(tuser), .s_axis_tvalid(in_valid), .s_axis_tdata(in_data),
        .s_axis_tkeep(in_keep), .s_axis_tlast(in_last), .s_axis_tuser(1'b0),
        .s_source_tvalid(1'b0), .s_source_tready(), .s_source_tdata(512'd0), .s_source_tkeep(64'd0), .s_source_tlast(1'b0),
        .s_source_lossy(1'b0), .answered_arp(arps), .answered_echo(echos), .unanswered(others), .overrun(overruns)
    );

    always #2 clk = !clk;

    always @(posedge clk) if (known) begin
        if (tvalid === 1'bx) errors = errors + 1;
        if (tvalid === 1'b1) begin
            beats = beats + 1;
            if (^tdata === 1'bx || ^tkeep === 1'bx || tlast === 1'bx || tuser !== 1'b0) errors = errors + 1;
            // IPv4 and UDP
            if (first && tdata[23*8 +: 8] === 8'd17) sends = sends + 1;
            else if (first) answers = answers + 1;
            first = tlast;
        end
    end

    task write(input [15:0] to, input [31:0] value);
        begin
            @(negedge clk);
            awvalid = 1; wvalid = 1; address = to; wdata = value;
            @(posedge clk);
            while (awready !== 1'b1) @(posedge clk);
            @(negedge clk);
            awvalid = 0; wvalid = 0;
            while (bvalid !== 1'b1) @(negedge clk);
            if (bresp !== 2'd0) errors = errors + 1;
        end
    endtask

    task read(input [15:0] from, output [31:0] value);
        begin
            @(negedge clk);
            arvalid = 1; address = from;
            @(posedge clk);
            while (arready !== 1'b1) @(posedge clk);
            @(negedge clk);
            arvalid = 0;
            while (rvalid !== 1'b1) @(negedge clk);
            value = rdata;
            if (^value === 1'bx || rresp !== 2'd0) begin
                errors = errors + 1;
                $display("fourstate: register %h reads %h", from, value);
            end
        end
    endtask

    // A beat of a frame, its first byte the highest.
    task receive(input [511:0] data, input [6:0] bytes, input last);
        integer i;
        begin
            @(negedge clk);
            for (i = 0; i < 64; i = i + 1) in_data[8*i +: 8] = data[8*(63-i) +: 8];
            in_keep = {64{1'b1}} >> (64 - bytes);
            in_valid = 1; in_last = last;
            @(negedge clk);
            in_valid = 0;
        end
    endtask

    reg [31:0] v;
    task command(input [15:0] block, input [31:0] word);
        begin
            write(block + 16'h80, word);
            v = 1;
            while (v !== 0 && errors == 0) read(block + 16'h80, v);
            read(block + 16'h84, v);
            if (v !== 0) begin
                errors = errors + 1;
                $display("fourstate: command %h ended with %h", word, v);
            end
        end
    endtask

    initial begin
        repeat (10) @(negedge clk);
        rst = 1;
        @(negedge clk);
        rst = 0;
        @(negedge clk);
        known = 1;
        repeat (500) @(negedge clk);
        read(16'h0000, v);
        write(16'h0044, 32'h00000001); write(16'h0048, 32'h0200);
        write(16'h0050, 0); write(16'h0054, 0); write(16'h0058, 32'hffff); write(16'h005c, 32'hc0000201);
        write(16'h0040, 1);
        write(16'h0100, 32'h00000001); write(16'h0104, 32'h10); write(16'h0108, 32'h20); write(16'h010c, 32'h5);
        write(16'h0110, 32'h8); write(16'h0114, 32'hc000); write(16'h0118, 32'h4000); write(16'h011c, 32'hffff);
        write(16'h0120, 32'h00000002); write(16'h0124, 32'h0200);
        write(16'h0130, 0); write(16'h0134, 0); write(16'h0138, 32'hffff); write(16'h013c, 32'hc0000202);
        command(16'h0000, 32'h0001);
        write(16'h1100, 32'h100); write(16'h1104, 32'd700); write(16'h1130, 32'd1);
        command(16'h1000, 32'h0001);
        command(16'h1000, 32'h0002);
        repeat (300) @(negedge clk);
        command(16'h0000, 32'h0003);
        read(16'h01c0, v);
        if (sends != 3 || v !== 3) begin
            errors = errors + 1;
            $display("fourstate: %0d frames left, PacketsSent %0d, want 3", sends, v);
        end
        receive({48'hffffffffffff, 48'h020000000002, 16'h0806, 64'h0001080006040001, 48'h020000000002, 32'hc0000202, 48'd0,
            32'hc0000201, 176'd0}, 7'd60, 1'b1);
        // A ping of 31 bytes, and what is neither
        receive({48'h020000000001, 48'h020000000002, 16'h0800, 160'h4500003b000100004001f6bdc0000202c0000201,
            64'h0800e5ca12340001, 176'd0}, 7'd64, 1'b0);
        receive({8'h00, 504'd0}, 7'd9, 1'b1);
        receive({512'd0}, 7'd60, 1'b1);
        repeat (200) @(negedge clk);
        if (answers != 2 || arps !== 1 || echos !== 1 || others !== 1 || overruns !== 0) begin
            errors = errors + 1;
            $display("fourstate: %0d answers, counted %0d ARP, %0d echo, %0d others, %0d without room", answers, arps, echos, others, overruns);
        end
        for (v = 0; v < 32'h2d0; v = v + 4) begin : all
            reg [31:0] x;
            read(v[15:0], x);
        end
        $display("fourstate: %0d sends, %0d answers, %0d beats, %0d errors", sends, answers, beats, errors);
        if (errors != 0) $fatal(1);
        $finish;
    end

endmodule
