package broker

import (
	"fmt"
	"log/slog"
)

// logger passes what the server says of trouble on; its notices are of no
// interest inside another program.
type logger struct{ log *slog.Logger }

func (l logger) Noticef(format string, v ...any) {
	l.log.Debug("nats server: " + fmt.Sprintf(format, v...))
}
func (l logger) Warnf(format string, v ...any) {
	l.log.Warn("nats server: " + fmt.Sprintf(format, v...))
}
func (l logger) Fatalf(format string, v ...any) {
	l.log.Error("nats server: " + fmt.Sprintf(format, v...))
}
func (l logger) Errorf(format string, v ...any) {
	l.log.Error("nats server: " + fmt.Sprintf(format, v...))
}
func (l logger) Debugf(string, ...any) {}
func (l logger) Tracef(string, ...any) {}
