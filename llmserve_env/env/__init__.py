"""The control problem: `episode` is the only step loop; Gymnasium, the server, the graders and the agents drive it."""
