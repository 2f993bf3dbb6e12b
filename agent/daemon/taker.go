package daemon

import (
	"fmt"
	"log/slog"

	"rocelink/agent/receive"
	"rocelink/agent/sink"
	"rocelink/agent/stream"
	"rocelink/fpga/pattern"
)

// taker makes the sinks of a stream. What has a known content is verified,
// also on its way to a file.
func taker(spec stream.Spec, log *slog.Logger) stream.Taker {
	return func(session int) (receive.Sink, error) {
		path, toFile := spec.SinkFile()
		var verify *sink.Verify
		if spec.Verifies() {
			kind, err := pattern.ParseKind(spec.Source)
			if err != nil {
				return nil, err
			}
			if verify, err = sink.NewVerify(sink.VerifyConfig{Pattern: kind, CRC: spec.CRC}); err != nil {
				return nil, err
			}
		}
		if !toFile {
			if verify == nil {
				return sink.Discard{}, nil
			}
			return verify, nil
		}
		if session > 0 {
			// What the first session wrote is not overwritten by a later one.
			path = fmt.Sprintf("%s.%d", path, session+1)
		}
		file, err := sink.CreateFile(path, sink.FileConfig{Slots: spec.Slots})
		if err != nil {
			return nil, err
		}
		w := &fileSink{Sink: file, file: file, path: path, log: log}
		if verify != nil {
			w.Sink = sink.NewTee(spec.Slots, verify, file)
		}
		return w, nil
	}
}

// fileSink is a file that says at its end what is in it.
type fileSink struct {
	receive.Sink
	file *sink.File
	path string
	log  *slog.Logger
}

// Close writes what is left.
func (f *fileSink) Close() error {
	r, err := f.file.Close()
	f.log.Info("file written", "path", f.path, "frames", r.Frames, "bytes", r.Bytes, "sha256", fmt.Sprintf("%x", r.SHA256))
	if err == nil && (r.Missing > 0 || r.Refused > 0 || r.Torn > 0) {
		err = fmt.Errorf("file %s: %d frames missing, %d too late, %d overwritten while written", f.path, r.Missing, r.Refused, r.Torn)
	}
	return err
}
