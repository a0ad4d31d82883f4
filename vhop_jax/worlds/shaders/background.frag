// Paints the ground, or the wall or sky behind it.
in vec3 world;
out vec4 pixel;
uniform sampler2DArray textures;

// How much darker it is in the corner of ground and wall.
const float CORNER = 0.25;

vec3 paint(vec2 point, vec4 colours[2], vec4 frame) {
  vec2 uv = vec2(frame.x * point.x - frame.y * point.y,
                 frame.y * point.x + frame.x * point.y) + frame.zw;
  vec2 texel = texture(textures, vec3(uv, colours[0].w)).rg;
  return mix(colours[0].rgb, colours[1].rgb, texel.r) * (0.1 + 1.8 * texel.g);
}

void main() {
  bool open = wall_colours[1].w == 0.0;
  float ambient = eye.w;
  vec3 away = world - eye.xyz;
  float lit = compute_lit(world, light_direction.w);
#ifdef GROUND
  vec3 colour = paint(world.xz, ground_colours, ground_frame);
  float occlusion = 1.0;
  for (int i = 0; i < int(light_colour.w); ++i) {
    vec2 off = (world.xz - contacts[i].xy) / contacts[i].z;
    float near = max(1.0 - 0.4 * dot(off, off), 0.0);
    occlusion *= 1.0 - contacts[i].w * near * near;
  }
  colour *= occlusion * (ambient * 0.9 + (1.15 - ambient)
                         * light_colour.rgb * light_direction.y * lit);
  float haze = clamp(length(away) * 0.03 - 0.1, 0.0, 1.0);
  float corner = max(1.0 - 2.0 * (world.z + wall_colours[1].w), 0.0);
  colour = open ? mix(colour, wall_colours[0].rgb, haze)
                : colour * (1.0 - CORNER * corner * corner);
#else
  vec3 colour = paint(world.xy, wall_colours, wall_frame);
  float slant = max(light_direction.z, 0.0);
  float corner = max(1.0 - 2.5 * world.y, 0.0);
  colour *= (1.0 - CORNER * corner * corner)
            * (0.62 + 0.38 * ambient
               + (1.0 - ambient) * (0.5 * slant * lit - 0.1));
  float up = clamp(2.2 * away.y / length(away), 0.0, 1.0);
  vec3 sky = mix(wall_colours[0].rgb, wall_colours[1].rgb, up);
  colour = open ? sky : colour;
#endif
  pixel = vec4(encode(colour), 1.0);
}
