package rocecore

import (
	"fmt"

	"rocelink/fpga/regs"
)

// command waits until the block takes a command, fills the registers the
// command takes, starts it and waits for its end. The two blocks share the
// layout of their command part, so the Core's names serve for both.
func (c *Core) command(bus regs.Bus, blockName string, op uint32, index int, fill ...value) error {
	if err := c.Check(); err != nil {
		return err
	}
	if err := c.wait(bus, blockName, op, index); err != nil {
		return err
	}
	if err := storeAll(bus, blockName, fill); err != nil {
		return fmt.Errorf("%s command %s, queue pair %d: %w", blockName, opName(blockName, op), index, err)
	}
	word := regs.CoreCommandIndex.Put(regs.CoreCommandOp.Of(op), uint32(index))
	if err := regs.CoreCommand.Write(bus, word); err != nil {
		return fmt.Errorf("%s command %s, queue pair %d: %w", blockName, opName(blockName, op), index, err)
	}
	if err := c.wait(bus, blockName, op, index); err != nil {
		return err
	}
	// A restart clears the command word too.
	if err := c.Check(); err != nil {
		return &CommandError{Block: blockName, Command: opName(blockName, op), Index: index, Err: err}
	}
	status, err := regs.CoreCommandStatus.Read(bus)
	if err != nil {
		return fmt.Errorf("%s command %s, queue pair %d: read its status: %w", blockName, opName(blockName, op), index, err)
	}
	code := regs.CoreCommandStatusCode.Get(status)
	if code == regs.CoreCommandStatusCodeOK {
		return nil
	}
	detail, err := regs.CoreCommandDetail.Read(bus)
	if err != nil {
		return fmt.Errorf("%s command %s, queue pair %d: read its detail: %w", blockName, opName(blockName, op), index, err)
	}
	e := &CommandError{
		Block: blockName, Command: opName(blockName, op), Index: index,
		Err: fmt.Errorf("%w: %s", ErrRefused, valueName(blockName, "CommandStatus", "Code", code)),
	}
	switch code {
	case regs.CoreCommandStatusCodeBadValue:
		e.Register = registerName(blockName, detail)
	case regs.CoreCommandStatusCodeBadState:
		e.State = valueName(blockName, "StatState", "State", detail)
		e.Err = fmt.Errorf("%w: %w", ErrRefused, ErrState)
	}
	return e
}

// wait polls until the command word is clear.
func (c *Core) wait(bus regs.Bus, blockName string, op uint32, index int) error {
	took, err := c.cfg.Poll.Until(func() (bool, error) {
		v, err := regs.CoreCommand.Read(bus)
		if err == nil && v == 0xFFFFFFFF {
			err = fmt.Errorf("the command word reads %#x: %w", v, ErrNoFabric)
		}
		return v == 0, err
	})
	if err != nil {
		return &CommandError{Block: blockName, Command: opName(blockName, op), Index: index, After: took, Err: err}
	}
	return nil
}

func opName(blockName string, op uint32) string { return valueName(blockName, "Command", "Op", op) }
