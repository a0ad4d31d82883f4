// Casts one ray per pixel to the ground, the wall or the sky.
in vec2 screen;
out vec4 pixel;
uniform sampler2DArray textures;

vec3 paint(vec2 point, vec4 colours[2], vec4 frame) {
  vec2 uv = vec2(frame.x * point.x - frame.y * point.y,
                 frame.y * point.x + frame.x * point.y) + frame.zw;
  vec2 texel = texture(textures, vec3(uv, colours[0].w)).rg;
  return mix(colours[0].rgb, colours[1].rgb, texel.r) * (0.1 + 1.8 * texel.g);
}

void main() {
  vec3 direction = screen.x * ray[0].xyz + screen.y * ray[1].xyz + ray[2].xyz;
  bool open = wall_colours[1].w == 0.0;
  float ambient = eye.w;

  float to_ground = eye.y / max(-direction.y, 1e-3);
  vec3 ground = eye.xyz + to_ground * direction;
  float to_wall = (eye.z + wall_colours[1].w) / max(-direction.z, 1e-3);
  vec3 wall = eye.xyz + to_wall * direction;

  // How much of the pixel lies above the edge of the ground.
  float height = open ? direction.y + 1e-3 : wall.y;
  float above = clamp(height / max(fwidth(height), 1e-6) + 0.5, 0.0, 1.0);

  float lit = compute_lit(above > 0.5 && !open ? wall : ground,
                          light_direction.w);
  vec3 far;
  if (open) {
    float up = clamp(2.2 * direction.y / length(direction), 0.0, 1.0);
    far = mix(wall_colours[0].rgb, wall_colours[1].rgb, up);
  } else {
    far = paint(wall.xy, wall_colours, wall_frame);
    float slant = max(light_direction.z, 0.0);
    // A corner is dim, and a wall that faces the light is bright.
    float corner = 1.0 - 0.25 * exp(-5.0 * max(wall.y, 0.0));
    far *= corner * (0.62 + 0.38 * ambient
                     + (1.0 - ambient) * (0.5 * slant * lit - 0.1));
  }

  vec3 near = paint(ground.xz, ground_colours, ground_frame);
  float occlusion = 1.0;
  for (int i = 0; i < 2; ++i) {
    vec2 away = (ground.xz - contacts[i].xy) / contacts[i].z;
    occlusion *= 1.0 - contacts[i].w * exp(-2.0 * dot(away, away));
  }
  float sun = light_direction.y * lit;
  near *= occlusion * (ambient * 0.9 + (1.15 - ambient) * light_colour.rgb * sun);
  if (open) near = mix(near, wall_colours[0].rgb, clamp(to_ground * 0.03 - 0.1, 0.0, 1.0));
  else near *= 1.0 - 0.25 * exp(-4.0 * abs(ground.z + wall_colours[1].w));

  pixel = vec4(encode(mix(near, far, above)), 1.0);
}
