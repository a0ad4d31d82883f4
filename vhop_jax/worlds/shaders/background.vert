// Covers the frame with one triangle.
out vec2 screen;

void main() {
  screen = vec2(gl_VertexID == 1 ? 3.0 : -1.0, gl_VertexID == 2 ? 3.0 : -1.0);
  gl_Position = vec4(screen, 1.0, 1.0);
}
