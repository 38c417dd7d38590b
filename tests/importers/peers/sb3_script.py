from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

env = VecNormalize(make_vec_env("Pendulum-v1", n_envs=4), norm_obs=True, norm_reward=False)
model = PPO("MlpPolicy", env, learning_rate=1e-3, gamma=0.9, n_steps=1024, policy_kwargs=dict(net_arch=[64, 64]))
model.learn(total_timesteps=100_000)
