package ibverbs

import "errors"

// ErrNotBuilt: the program was built without libibverbs. Only such a program
// returns it; callers compare with it in any build.
var ErrNotBuilt = errors.New("built without libibverbs")
