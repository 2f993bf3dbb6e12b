// Command rocelink-fabric plays the fabric: its registers are a file that
// boardd maps, its frames UDP datagrams.
package main

func main() { newProgram().Main() }
