//go:build !linux

package doctor

import "errors"

func thisHost() (System, error) { return nil, errors.ErrUnsupported }
