layout(std140) uniform Thing {
  mat4 model;
  vec4 first;
  vec4 second;
  vec4 body_low;
  vec4 body_size;
  vec4 print_frame;
  vec4 print_side;
};
in vec3 in_position;

void main() {
  gl_Position = light_projection * (model * vec4(in_position, 1.0));
}
