// Runs the core's netlist in four states: everything begins unknown, a reset of
// one cycle must be enough to make it known, and three SENDs leave without an
// unknown bit. In a netlist a choice by an unknown bit is unknown, while a
// simulator of the source takes one branch and hides it.
`timescale 1ns / 1ps

module fourstate;

    reg          clk = 0;
    reg          rst = 0;
    reg          bus_write = 0;
    reg  [15:0]  bus_address = 0;
    reg  [31:0]  bus_wdata = 0;
    wire [31:0]  bus_rdata;
    wire         tvalid, tlast, tuser;
    wire [511:0] tdata;
    wire [63:0]  tkeep;
    integer      frames = 0, beats = 0, errors = 0;
    reg          known = 0;

    rl_core core (
        .clk(clk), .rst(rst), .boot(32'd1), .bus_write(bus_write), .bus_address(bus_address), .bus_wdata(bus_wdata),
        .bus_rdata(bus_rdata), .local_mac(), .local_ip(), .link_up(1'b1), .m_axis_tvalid(tvalid), .m_axis_tready(1'b1), .m_axis_tdata(tdata),
        .m_axis_tkeep(tkeep), .m_axis_tlast(tlast), .m_axis_tuser(tuser), .s_axis_tvalid(1'b0), .s_axis_tdata(512'd0),
        .s_axis_tkeep(64'd0), .s_axis_tlast(1'b0), .s_axis_tuser(1'b0),
        .s_source_tvalid(1'b0), .s_source_tready(), .s_source_tdata(512'd0), .s_source_tkeep(64'd0), .s_source_tlast(1'b0),
        .s_source_lossy(1'b0)
    );

    always #2 clk = !clk;

    always @(posedge clk) if (known) begin
        if (tvalid === 1'bx) errors = errors + 1;
        if (tvalid === 1'b1) begin
            beats = beats + 1;
            if (^tdata === 1'bx || ^tkeep === 1'bx || tlast === 1'bx || tuser !== 1'b0) errors = errors + 1;
            if (tlast === 1'b1) frames = frames + 1;
        end
    end

    task write(input [15:0] address, input [31:0] value);
        begin
            @(negedge clk);
            bus_write = 1; bus_address = address; bus_wdata = value;
            @(negedge clk);
            bus_write = 0;
        end
    endtask

    task read(input [15:0] address, output [31:0] value);
        begin
            @(negedge clk);
            bus_address = address;
            @(negedge clk); @(negedge clk);
            value = bus_rdata;
            if (^value === 1'bx) begin
                errors = errors + 1;
                $display("fourstate: register %h reads %h", address, value);
            end
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
        if (frames != 3 || v !== 3) begin
            errors = errors + 1;
            $display("fourstate: %0d frames left, PacketsSent %0d, want 3", frames, v);
        end
        for (v = 0; v < 32'h2d0; v = v + 4) begin : all
            reg [31:0] x;
            read(v[15:0], x);
        end
        $display("fourstate: %0d frames, %0d beats, %0d errors", frames, beats, errors);
        if (errors != 0) $fatal(1);
        $finish;
    end

endmodule
