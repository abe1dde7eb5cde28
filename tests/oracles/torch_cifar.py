"""A small PyTorch version of the CIFAR-10 110-layer nets, to test ours against.

Written from the published description (stem of 16; three stages of basic
blocks; option A or B shortcuts; y = x + T·(H − x)), not from our Keras code.
Parameter names come from the authors' script. Only `make_goldens.py`
imports this: the tests need no PyTorch.
"""

import torch
from torch import nn
from torch.nn import functional as F


def conv3x3(inputs, outputs, stride=1):
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


class OptionA(nn.Module):
    """Every second pixel; a quarter of the new width in zeros on either side of the channels."""

    def __init__(self, outputs):
        super().__init__()
        self.margin = outputs // 4

    def forward(self, x):
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.margin, self.margin))


class ResidualBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = conv3x3(inputs, outputs, stride), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = conv3x3(outputs, outputs), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity() if stride == 1 else OptionA(outputs)

    def forward(self, x):
        h = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(h + self.shortcut(x))


class HighwayBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = conv3x3(inputs, outputs, stride), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = conv3x3(outputs, outputs), nn.BatchNorm2d(outputs)
        self.gate1, self.gatebn1 = conv3x3(inputs, outputs, stride), nn.BatchNorm2d(outputs)
        self.gate2, self.gatebn2 = conv3x3(outputs, outputs), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            conv = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(outputs))

    def forward(self, x):
        h = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        t = torch.sigmoid(self.gatebn2(self.gate2(F.relu(self.gatebn1(self.gate1(x))))))
        x = self.shortcut(x)
        return h * t + x * (1 - t)


class CifarNet(nn.Module):
    """Stem, three stages, optionally a 3x3 convolution to 64 maps, mean over the image, classifier."""

    def __init__(self, block, widths, depth=18, neck=None, classes=10):
        super().__init__()
        self.conv1, self.bn1 = conv3x3(3, 16), nn.BatchNorm2d(16)
        inputs = 16
        for stage, width in enumerate(widths, start=1):
            blocks = []
            for index in range(depth):
                blocks.append(block(inputs, width, 2 if stage > 1 and index == 0 else 1))
                inputs = width
            setattr(self, f"layer{stage}", nn.Sequential(*blocks))
        self.neck = neck
        if neck is not None:
            self.convproj, self.bnproj = conv3x3(inputs, neck), nn.BatchNorm2d(neck)
        self.linear = nn.Linear(neck or inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight)
            if isinstance(module, HighwayBlock):
                nn.init.constant_(module.gatebn2.bias, -6.0)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        if self.neck is not None:
            x = F.relu(self.bnproj(self.convproj(x)))
        return self.linear(x.mean(dim=(2, 3)))


def resnet110():
    return CifarNet(ResidualBlock, (16, 32, 64))


def highway110():
    return CifarNet(HighwayBlock, (14, 28, 56))


def highway111():
    return CifarNet(HighwayBlock, (12, 24, 48), neck=64)
