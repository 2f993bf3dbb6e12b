# Makes the Vivado project of a board:
#
#   vivado -mode batch -source project.tcl -tclargs BOARD [REFCLK_P REFCLK_N]
#
# BOARD is a file of boards/, without its ending. The project goes to
# build/vivado/BOARD of the repository. Nothing is synthesized.
set here [file dirname [file normalize [info script]]]
set root [file dirname [file dirname $here]]

if {[llength $argv] != 1 && [llength $argv] != 3} {
    error "read arguments: [llength $argv] given, want BOARD or BOARD REFCLK_P REFCLK_N"
}
set name [lindex $argv 0]
if {![regexp {^[a-z0-9-]+$} $name] || ![file exists $here/boards/$name.tcl]} {
    error "find board: no description of \"$name\", have [lsort [glob -tails -directory $here/boards *.tcl]]"
}
source $here/boards/$name.tcl
if {[llength $argv] == 3} {
    dict set board refclk_pins [lrange $argv 1 2]
}
dict with board {}
if {[llength $refclk_pins] != 2} {
    error "place reference clock: its pins are not known for $name, give REFCLK_P and REFCLK_N by the board's schematic"
}

set out $root/build/vivado/$name
file mkdir $out
create_project -force rocelink-$name $out -part $part

set sources [list \
    fpga/rtl/rl_check.sv fpga/rtl/rl_command.sv fpga/rtl/rl_core.sv fpga/rtl/rl_core_regs.sv \
    fpga/rtl/rl_counts.sv fpga/rtl/rl_fifo.sv fpga/rtl/rl_fill.sv fpga/rtl/rl_icrc_fold.sv \
    fpga/rtl/rl_icrc_insert.sv fpga/rtl/rl_ingest.sv fpga/rtl/rl_pacer.sv fpga/rtl/rl_queue.sv \
    fpga/rtl/rl_reads.sv fpga/rtl/rl_ring.sv fpga/rtl/rl_rx.sv fpga/rtl/rl_source.sv \
    fpga/rtl/rl_store.sv fpga/rtl/rl_stream_regs.sv fpga/rtl/rl_sweep.sv fpga/rtl/rl_table.sv \
    fpga/rtl/rl_total.sv fpga/rtl/rl_transport.sv fpga/rtl/rl_tx_frame.sv fpga/rtl/rl_tx_header.sv \
    fpga/rtl/rl_tx_out.sv fpga/rtl/shell/rl_axil.sv fpga/rtl/shell/rl_shell.sv \
    fpga/rtl/shell/rl_slow_reply.sv fpga/rtl/shell/rl_slow_rx.sv fpga/rtl/shell/rl_slow_tx.sv \
    fpga/vivado/rl_board.v]
foreach f $sources {
    add_files -norecurse $root/$f
}
set_property include_dirs [list $root/fpga/rtl $root/fpga/regs] [current_fileset]

# Pins. The clocks are constrained by the cells that make them.
set xdc [open $out/pins.xdc w]
puts $xdc "set_property PACKAGE_PIN [lindex $refclk_pins 0] \[get_ports gt_ref_clk_clk_p\]"
puts $xdc "set_property PACKAGE_PIN [lindex $refclk_pins 1] \[get_ports gt_ref_clk_clk_n\]"
foreach {line pin level} $lines {
    puts $xdc "set_property -dict {PACKAGE_PIN $pin IOSTANDARD $standard} \[get_ports $line\]"
}
close $xdc
add_files -fileset constrs_1 -norecurse $out/pins.xdc

create_bd_design board

# pl_clk0 never stops: it is the clock of AXI and the CMAC's init_clk.
create_bd_cell -type ip -vlnv xilinx.com:ip:zynq_ultra_ps_e ps
set_property -dict [list CONFIG.PSU__USE__M_AXI_GP0 1 CONFIG.PSU__USE__M_AXI_GP1 0 CONFIG.PSU__USE__M_AXI_GP2 0 \
    CONFIG.PSU__MAXIGP0__DATA_WIDTH 32 CONFIG.PSU__FPGA_PL0_ENABLE 1 \
    CONFIG.PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ 100] [get_bd_cells ps]
create_bd_cell -type ip -vlnv xilinx.com:ip:proc_sys_reset reset
create_bd_cell -type ip -vlnv xilinx.com:ip:proc_sys_reset user_reset

# The CMAC as boardd drives it: AXI4-Lite, RS-FEC, no flow control, counters by
# register and not by the pin.
create_bd_cell -type ip -vlnv xilinx.com:ip:cmac_usplus mac
set_property -dict [list CONFIG.CMAC_CAUI4_MODE 1 CONFIG.NUM_LANES 4x25 CONFIG.USER_INTERFACE AXIS \
    CONFIG.GT_REF_CLK_FREQ $refclk_mhz CONFIG.GT_DRP_CLK 100.00 CONFIG.CMAC_CORE_SELECT $cmac \
    CONFIG.GT_GROUP_SELECT $quad CONFIG.ENABLE_AXI_INTERFACE 1 CONFIG.INCLUDE_RS_FEC 1 \
    CONFIG.TX_FLOW_CONTROL 0 CONFIG.RX_FLOW_CONTROL 0 CONFIG.RX_MAX_PACKET_LEN 9600] [get_bd_cells mac]

create_bd_cell -type module -reference rl_board roce
create_bd_cell -type ip -vlnv xilinx.com:ip:smartconnect axi
set_property -dict [list CONFIG.NUM_SI 1 CONFIG.NUM_MI 2 CONFIG.NUM_CLKS 2] [get_bd_cells axi]
create_bd_cell -type ip -vlnv xilinx.com:ip:xlconstant zero
set_property -dict [list CONFIG.CONST_WIDTH 1 CONFIG.CONST_VAL 0] [get_bd_cells zero]
create_bd_cell -type ip -vlnv xilinx.com:ip:xlconstant one
set_property -dict [list CONFIG.CONST_WIDTH 1 CONFIG.CONST_VAL 1] [get_bd_cells one]

# wire joins the pin to all that follow.
proc wire {from args} {
    foreach to $args {
        connect_bd_net [get_bd_pins $from] [get_bd_pins $to]
    }
}
proc join_interface {from to} {
    connect_bd_intf_net [get_bd_intf_pins $from] [get_bd_intf_pins $to]
}

wire ps/pl_clk0 ps/maxihpm0_fpd_aclk reset/slowest_sync_clk axi/aclk mac/s_axi_aclk mac/init_clk mac/drp_clk
wire ps/pl_resetn0 reset/ext_reset_in user_reset/ext_reset_in
wire reset/peripheral_aresetn axi/aresetn
wire reset/peripheral_reset mac/s_axi_sreset mac/sys_reset
# The receiver is read in the transmitter's clock: the MAC's own buffer crosses.
wire mac/gt_txusrclk2 mac/rx_clk axi/aclk1 roce/clk user_reset/slowest_sync_clk
wire mac/usr_tx_reset user_reset/aux_reset_in
set_property -dict [list CONFIG.C_AUX_RESET_HIGH 1] [get_bd_cells user_reset]
wire user_reset/peripheral_reset roce/rst
wire mac/stat_rx_aligned roce/link_up
wire zero/dout mac/pm_tick mac/core_tx_reset mac/core_rx_reset mac/core_drp_reset \
    mac/gtwiz_reset_tx_datapath mac/gtwiz_reset_rx_datapath
wire one/dout reset/dcm_locked user_reset/dcm_locked

join_interface ps/M_AXI_HPM0_FPD axi/S00_AXI
join_interface axi/M00_AXI roce/s_axil
join_interface axi/M01_AXI mac/s_axi
join_interface roce/m_axis mac/axis_tx
join_interface mac/axis_rx roce/s_axis
make_bd_intf_pins_external -name gt_ref_clk [get_bd_intf_pins mac/gt_ref_clk]
make_bd_intf_pins_external -name gt [get_bd_intf_pins mac/gt_serial_port]
foreach {line pin level} $lines {
    create_bd_port -dir O $line
    connect_bd_net [get_bd_pins [expr {$level ? "one" : "zero"}]/dout] [get_bd_ports $line]
}

assign_bd_address -offset [format 0x%X [expr {$base + $roce}]] -range 64K [get_bd_addr_segs roce/s_axil/reg0]
assign_bd_address -offset [format 0x%X [expr {$base + $mac}]] -range 64K [get_bd_addr_segs mac/s_axi/Reg]

validate_bd_design
save_bd_design
make_wrapper -files [get_files board.bd] -top -import
set_property top board_wrapper [current_fileset]
update_compile_order -fileset sources_1
