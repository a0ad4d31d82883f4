layout(std140) uniform Thing {
  mat4 model;
  vec4 first;      // named colour, w: pattern
  vec4 second;     // second colour, w: height above which a two-tone has
                   // it, or below which if negative
  vec4 body_low;   // w: frequency of the pattern
  vec4 body_size;  // w: phase of the pattern
  vec4 print_frame;  // centre right and up, half width (0: none) and height
  vec4 print_side;   // cos and sin of its turn, how far out it lies
};
in vec3 in_position;
in vec3 in_normal;
in float in_part;
out vec3 world;
out vec3 normal;
out vec3 local;
out vec3 local_normal;
flat out float part;
#ifdef SKIN
in vec3 in_uv;
in vec3 in_base;
out vec3 uv;
flat out vec3 base;
#endif

void main() {
  local = in_position;
  local_normal = in_normal;
  part = in_part;
#ifdef SKIN
  uv = in_uv;
  base = in_base;
#endif
  normal = mat3(model) * in_normal;
  world = (model * vec4(in_position, 1.0)).xyz;
  gl_Position = view_projection * vec4(world, 1.0);
}
