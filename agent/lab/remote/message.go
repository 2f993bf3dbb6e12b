package remote

import "time"

// Command is a program to run.
type Command struct {
	// Args is the program, by path or to be found in PATH, and its arguments.
	Args []string
	// Env is added to the environment of the server.
	Env []string `json:",omitempty"`
	// Limit is when the program is killed; 0 is DefaultLimit.
	Limit time.Duration `json:",omitempty"`
	// TimerSlack is how late the kernel may wake the program (prctl(2),
	// PR_SET_TIMERSLACK); 0 leaves it at that of the server.
	TimerSlack time.Duration `json:",omitempty"`
}

// DefaultLimit is how long a program without a limit of its own may run.
const DefaultLimit = time.Minute

// Exit is how a program ended.
type Exit struct {
	Code int // -1: it did not start, or a signal ended it
	// Reason says why Code is -1; "" otherwise.
	Reason  string `json:",omitempty"`
	Elapsed time.Duration
}

// message is one line of the stream. What is nil or zero is not meant.
type message struct {
	ID uint64 `json:",omitempty"`

	// To the server.
	Run      *Command `json:",omitempty"`
	Input    []byte   `json:",omitempty"`
	EndInput bool     `json:",omitempty"`
	Kill     bool     `json:",omitempty"`
	Signal   int      `json:",omitempty"`
	Relay    *relay   `json:",omitempty"`
	PowerOff bool     `json:",omitempty"`

	// To the client.
	Hello  string `json:",omitempty"`
	Output []byte `json:",omitempty"`
	Stderr []byte `json:",omitempty"`
	Exit   *Exit  `json:",omitempty"`
}

// relay asks for a connection between two TCP addresses.
type relay struct {
	From, To string
	// Patience is how long To is tried for.
	Patience time.Duration
}
