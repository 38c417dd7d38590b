"""Vision-language models as policies of text: which families, how they read pictures, and where features go."""
