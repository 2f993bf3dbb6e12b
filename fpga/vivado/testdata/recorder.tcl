# Runs project.tcl with Vivado's commands replaced by a record of their calls,
# one a line. A command that is not known here ends the run.
#
#   tclsh recorder.tcl project.tcl BOARD [REFCLK_P REFCLK_N]
foreach command {create_project add_files set_property current_fileset get_ports create_bd_design create_bd_cell
        get_bd_cells connect_bd_net connect_bd_intf_net get_bd_pins get_bd_intf_pins make_bd_intf_pins_external
        create_bd_port get_bd_ports assign_bd_address get_bd_addr_segs validate_bd_design save_bd_design
        make_wrapper get_files update_compile_order} {
    proc $command args {
        set name [lindex [info level 0] 0]
        if {![string match {get_*} $name] && $name ne "current_fileset"} {
            puts "$name $args"
        }
        return [lindex $args end]
    }
}
set script [lindex $argv 0]
set argv [lrange $argv 1 end]
set argc [llength $argv]
source $script
