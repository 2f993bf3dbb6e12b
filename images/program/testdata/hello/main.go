// Command hello is the smallest program that the tests build for a board.
package main

import "fmt"

func main() { fmt.Println("hello") }
