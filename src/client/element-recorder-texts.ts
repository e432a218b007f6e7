/** The texts of the upload element that are only needed with a recording. */
export const RECORDER_TEXTS = {
  pause: "Pause",
  continue: "Continue",
  paused: "Paused",
  stop: "Stop",
  send: "Send",
  // Begins the name of the file.
  recording: "Recording",
  level: "Microphone level",
  playback: "Your recording",
  recovered: "This recording was not sent. Send or cancel it.",
  announceRecording: "Recording",
  announceRecorded: "Recording stopped. Send or cancel it.",
  unsent: "Send or cancel your recording.",
  microphone_denied: "Allow this page to use your microphone, then record again.",
  microphone_missing: "No microphone found. Connect one, then record again.",
  microphone_muted: "Your microphone is in use elsewhere. The recording continues afterwards.",
  microphone_lost: "Your microphone was disconnected. Send or cancel your recording.",
};
