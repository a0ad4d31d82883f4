// What every shader knows of the picture. Colours are linear RGB.
layout(std140) uniform Scene {
  mat4 view_projection;
  mat4 light_projection;
  vec4 eye;              // w: share of ambient light
  vec4 light_direction;  // towards the light; w: softness in shadow texels
  vec4 light_colour;     // w: how many contacts there are
  vec4 contacts[8];      // x, z, radius, darkness of where an object stands
  vec4 ground_colours[2];  // w: layer of the texture / reach behind
  vec4 ground_frame;     // cos and sin of the angle over the period, offset
  vec4 wall_colours[2];  // w: layer of the texture / distance, 0: open sky
  vec4 wall_frame;
};
uniform sampler2DShadow shadow_map;

// Where the shadow map is read: more often where a blurred edge is seen large.
#ifdef FINE
#define TAPS 8
#define SHADOW_TAPS vec2[8]( \
    vec2(-0.33, -0.80), vec2(0.46, -0.55), vec2(-0.83, -0.18), \
    vec2(-0.06, -0.14), vec2(0.86, 0.08), vec2(-0.55, 0.52), \
    vec2(0.25, 0.42), vec2(0.15, 0.95))
#else
#define TAPS 3
#define SHADOW_TAPS vec2[3](vec2(-0.5, -0.3), vec2(0.5, -0.3), vec2(0.0, 0.55))
#endif

// Converts linear RGB to sRGB by three square roots (at most 3 of 255 off, near
// black), since a software rasteriser takes long for a power.
vec3 encode(vec3 linear) {
  vec3 a = sqrt(clamp(linear, 0.0, 1.0));
  vec3 b = sqrt(a);
  vec3 c = sqrt(b);
  vec3 upper = 0.662002687 * a + 0.684122060 * b - 0.323583601 * c
               - 0.0225411470 * linear;
  return max(upper, 0.0);
}

// Share of the key light that reaches a point, 0 in the shadow.
float compute_lit(vec3 world, float blur_texels) {
  const vec2 taps[TAPS] = SHADOW_TAPS;
  vec4 position = light_projection * vec4(world, 1.0);
  vec3 coordinates = 0.5 + 0.5 * position.xyz;
  vec2 radius = blur_texels / vec2(textureSize(shadow_map, 0));
  float lit = 0.0;
  for (int i = 0; i < TAPS; ++i)
    lit += texture(shadow_map, vec3(coordinates.xy + radius * taps[i],
                                    coordinates.z));
  return lit / float(TAPS);
}
