// Makes a quad of four corners: the ground, or the wall or sky behind it.
out vec3 world;

const float FAR_AWAY = 80.0;
const float WIDE = 300.0;

void main() {
  float distance = wall_colours[1].w == 0.0 ? FAR_AWAY : wall_colours[1].w;
  float side = (gl_VertexID & 1) == 0 ? -WIDE : WIDE;
  bool second = (gl_VertexID & 2) != 0;
#ifdef GROUND
  world = vec3(side, 0.0, second ? eye.z + ground_colours[1].w : -distance);
#else
  world = vec3(side, second ? WIDE : 0.0, -distance);
#endif
  gl_Position = view_projection * vec4(world, 1.0);
}
